package config

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"unicode/utf16"
	"unicode/utf8"
)

// plainText turns the bytes of a file into UTF-8 without a byte order mark. Editors
// on Windows write UTF-8 with one, and a shell redirection there writes UTF-16: both are
// read. What is no text at all is an error with its position.
func plainText(file string, data []byte) ([]byte, *FileError) {
	fail := func(line, col int, format string, args ...any) *FileError {
		return &FileError{File: file, Line: line, Column: col, Message: fmt.Sprintf(format, args...)}
	}
	if len(data) > maxFileSize {
		return nil, fail(0, 0, "the file is larger than %s; a configuration is a few kilobytes", formatSize(maxFileSize))
	}
	if order := utf16Order(data); order != nil {
		if len(data)%2 != 0 {
			return nil, fail(1, 1, "the file is UTF-16 and ends in half a character; save it as UTF-8")
		}
		units := make([]uint16, len(data)/2)
		for i := range units {
			units[i] = order.Uint16(data[2*i:])
		}
		data = []byte(string(utf16.Decode(units)))
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	for at := 0; at < len(data); {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n == 1 {
			line, col := position(data, at)
			return nil, fail(line, col, "the file is not UTF-8 text")
		}
		at += n
	}
	return data, nil
}

// utf16Order knows UTF-16 by its mark, or by the zero bytes beside the first
// characters of a text that begins in ASCII; nil is something else.
func utf16Order(data []byte) binary.ByteOrder {
	if len(data) < 2 {
		return nil
	}
	ascii := func(b byte) bool { return b == '\t' || b == '\n' || b == '\r' || b >= ' ' && b < 0x7f }
	switch {
	case data[0] == 0xff && data[1] == 0xfe, data[1] == 0 && ascii(data[0]):
		return binary.LittleEndian
	case data[0] == 0xfe && data[1] == 0xff, data[0] == 0 && ascii(data[1]):
		return binary.BigEndian
	}
	return nil
}

var onlyPath = regexp.MustCompile(`^(\.{1,2}/)?([^\s{}\[\]:,="'#]+/)+[^\s{}\[\]:,="'#/]+\s*$`)

// checkedOutLink knows a file whose whole text is a path: what remains of a symbolic
// link where a repository was checked out without them.
func checkedOutLink(file string, data []byte) *FileError {
	if len(data) > 4096 || !onlyPath.Match(data) {
		return nil
	}
	return &FileError{File: file, Line: 1, Column: 1, Message: "the file holds nothing but a path: it was a symbolic link and was checked out as text; " +
		"replace it by the file that it points to"}
}
