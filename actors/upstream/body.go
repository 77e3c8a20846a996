package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// readJSON hands over the body as one frame. A body that broke off behind its last
// brace is whole.
func (r *remote) readJSON(resp *http.Response, use func(frame), bad func(error)) {
	if resp.ContentLength > int64(r.max) {
		use(frame{over: true, owned: true})
		return
	}
	f, err := readBody(resp.Body, r.max, resp.ContentLength)
	if err != nil && !f.over && !json.Valid(f.data) {
		bad(fmt.Errorf("the answer broke off: %w", err))
		return
	}
	use(f)
}

// readBody reads a body of at most that many bytes, however it is laid out. Memory
// grows with what has come and not with what was promised, and a body that is too
// long is given up without a copy.
func readBody(body io.Reader, most int, promised int64) (frame, error) {
	const least, part = 16 << 10, 1 << 20
	size := int(min(max(promised, least), part))
	var parts [][]byte
	total := 0
	for {
		b := make([]byte, min(size, most+1-total))
		n, err := 0, error(nil)
		for n < len(b) && err == nil {
			var k int
			k, err = body.Read(b[n:])
			n += k
		}
		parts = append(parts, b[:n])
		total += n
		if total > most {
			return oversized(parts...), nil
		}
		if errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			size = min(2*size, part)
			continue
		}
		if len(parts) == 1 {
			return frame{data: parts[0], owned: true}, err
		}
		return frame{data: bytes.Join(parts, nil), owned: true}, err
	}
}
