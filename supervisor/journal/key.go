package journal

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"

	"mcpbridge/messages"
)

const (
	keyName = "key"
	keySize = 32
	keyWord = "mcpbridge-journal-key"
)

// loadKey reads the key of the arguments' digests, and makes one where there is none
// or an unreadable one. note says what was wrong.
func loadKey(fsys FS, dir string, files []Stat) (key []byte, note string, err error) {
	path := filepath.Join(dir, keyName)
	var stat *Stat
	for _, f := range files {
		if f.Name == keyName {
			stat = &f
		}
	}
	if stat != nil {
		if !stat.Regular {
			return nil, "", fmt.Errorf("%s is no regular file: remove it, and the next start makes a new one", path)
		}
		b, err := fsys.ReadFile(path)
		if err != nil {
			return nil, "", err // it may be readable later: a new key would orphan every digest
		}
		if key, err = decodeKey(b); err == nil {
			if stat.Loose {
				note = "others could read the key of the argument digests until now; its mode is 0600 again"
			}
			return key, note, nil
		}
		note = "the key of the argument digests was damaged and is replaced: an idempotency key that was used before is now refused as a conflict"
	}
	key = make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	tmp := path + ".new"
	for _, f := range files {
		if f.Name == keyName+".new" { // of a start that died here
			if err := fsys.Remove(tmp); err != nil {
				return nil, "", err
			}
		}
	}
	f, err := fsys.Create(tmp)
	if err != nil {
		return nil, "", err
	}
	_, err = io.WriteString(f, encodeKey(key))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = fsys.Rename(tmp, path)
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		_ = fsys.Remove(tmp)
		return nil, "", err
	}
	return key, note, nil
}

func encodeKey(key []byte) string {
	return fmt.Sprintf("%s %s %08x\n", keyWord, hex.EncodeToString(key), crc32.Checksum(key, castagnoli))
}

func decodeKey(b []byte) ([]byte, error) {
	words := strings.Fields(string(b))
	if len(words) != 3 || words[0] != keyWord {
		return nil, errors.New("no key")
	}
	key, err := hex.DecodeString(words[1])
	if err != nil || len(key) != keySize || encodeKey(key) != string(b) {
		return nil, errors.New("a damaged key")
	}
	return key, nil
}

// Digest is a keyed digest of a call's arguments: equal for arguments that differ
// only in white space and the order of names, useless to whoever lacks the key. It
// names its key, so that digests of two keys are never equal.
func Digest(key []byte, args json.RawMessage) string {
	name := sha256.Sum256(append([]byte("mcpbridge digest key\x00"), key...))
	mac := hmac.New(sha256.New, key)
	mac.Write(canonical(args))
	return hex.EncodeToString(name[:4]) + ":" + hex.EncodeToString(mac.Sum(nil))
}

// canonical brings JSON into one form, and leaves alone what it could make ambiguous:
// where names repeat or characters are escaped, sorting would change what is there,
// which shows in the length.
func canonical(args json.RawMessage) []byte {
	var compact bytes.Buffer
	if json.Compact(&compact, args) != nil {
		return args
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return compact.Bytes()
	}
	var sorted bytes.Buffer
	enc := json.NewEncoder(&sorted)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return compact.Bytes()
	}
	if b := bytes.TrimSuffix(sorted.Bytes(), []byte{'\n'}); len(b) == compact.Len() {
		return b
	}
	return compact.Bytes()
}

// keyIssue reports what was wrong with the key.
func keyIssue(dir, note string) messages.Issue {
	return messages.Issue{File: filepath.Join(dir, keyName), Path: "journal", Stage: messages.StageRunning, Severity: messages.SeverityWarning, Message: note}
}
