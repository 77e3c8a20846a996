//go:build !planted

package journal

// systemFS is the file layer of a journal that is given none.
func systemFS() FS { return osFS{} }
