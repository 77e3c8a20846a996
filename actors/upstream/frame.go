package upstream

import (
	"bufio"
	"bytes"
	"io"
)

const (
	// readBuffer holds most answers whole, so that they are parsed in place.
	readBuffer = 64 << 10
	// sniffBytes are kept of each end of a line over the cap, to find its id.
	sniffBytes = 1 << 10
)

// frame is one line of a stream.
type frame struct {
	data []byte
	// owned says that data is the caller's; otherwise it is valid until the next line.
	owned bool
	// cut is set for the last line of a stream that has no newline.
	cut bool
	// over is set for a line over the cap: data is then its beginning, end its last bytes.
	over bool
	end  []byte
}

// lineReader cuts a stream into lines. A line over max bytes is skipped to its
// newline with bounded memory.
type lineReader struct {
	br  *bufio.Reader
	max int
}

func newLineReader(r io.Reader, maxLine int) *lineReader {
	return &lineReader{br: bufio.NewReaderSize(r, readBuffer), max: maxLine}
}

// next returns the next line without its newline. The last line of a stream needs none.
func (r *lineReader) next() (frame, error) {
	part, err := r.br.ReadSlice('\n')
	if err == nil {
		if part = part[:len(part)-1]; len(part) > r.max {
			return oversized(part), nil
		}
		return frame{data: part}, nil
	}
	if err != bufio.ErrBufferFull {
		if len(part) > r.max {
			return oversized(part), nil
		}
		if len(part) > 0 {
			return frame{data: part, cut: true}, nil
		}
		return frame{}, err
	}
	line := append(make([]byte, 0, 4*len(part)), part...)
	for {
		part, err = r.br.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > r.max+1 {
			return r.skip(line, err)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		cut := err != nil
		line = bytes.TrimSuffix(line, []byte{'\n'})
		if len(line) > r.max {
			return oversized(line), nil
		}
		return frame{data: line, owned: true, cut: cut}, nil
	}
}

// skip reads on to the end of an oversized line, keeping its two ends.
func (r *lineReader) skip(line []byte, err error) (frame, error) {
	f := oversized(bytes.TrimSuffix(line, []byte{'\n'}))
	for err == bufio.ErrBufferFull {
		var part []byte
		part, err = r.br.ReadSlice('\n')
		f.end = append(f.end, bytes.TrimSuffix(part, []byte{'\n'})...)
		if len(f.end) > sniffBytes {
			f.end = append(f.end[:0], f.end[len(f.end)-sniffBytes:]...)
		}
	}
	return f, nil
}

func oversized(line []byte) frame {
	return frame{over: true, owned: true,
		data: bytes.Clone(line[:min(len(line), sniffBytes)]),
		end:  bytes.Clone(line[max(0, len(line)-sniffBytes):])}
}
