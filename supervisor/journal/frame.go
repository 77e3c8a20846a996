package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// A frame is one record on the disk, all numbers little endian:
//
//	 0  4  magic  00 'm' 'j' 01
//	 4  4  length of the payload
//	 8  8  sequence number
//	16  4  CRC32C of segment number, sequence number and payload
//	20  4  CRC32C of segment number and the 20 bytes before
//	24  …  payload, which holds no zero byte
//
// The second checksum tells a record that was cut off (its head verifies, the file
// ends) from one whose length was damaged. The segment number keeps bytes of another
// file from passing; the magic cannot occur in a payload, so that no text a server
// sent is ever taken for a record while a reader looks for the next good one.
const (
	frameHead  = 24
	maxPayload = 1 << 20
	suffix     = ".journal"
)

var (
	magic      = [4]byte{0x00, 'm', 'j', 0x01}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// frame is a record that verified.
type frame struct {
	off, end int64
	seq      uint64
	payload  []byte
}

// hole is a part of a segment in which nothing verifies.
type hole struct {
	off, end int64
	// torn: it looks like the last write of a process that died: the file ends
	// within a frame whose head is good or cut itself, or is all zeros from here.
	torn bool
}

type verdict uint8

const (
	frameGood verdict = iota
	frameCut          // a good beginning, and the bytes end
	frameBad
)

func sums(segment uint64, head, payload []byte) (body, front uint32) {
	var s [8]byte
	binary.LittleEndian.PutUint64(s[:], segment)
	salt := crc32.Update(0, castagnoli, s[:])
	body = crc32.Update(crc32.Update(salt, castagnoli, head[8:16]), castagnoli, payload)
	var b [20]byte
	copy(b[:], head[:16])
	binary.LittleEndian.PutUint32(b[16:], body)
	return body, crc32.Update(salt, castagnoli, b[:])
}

func appendFrame(dst []byte, segment, seq uint64, payload []byte) []byte {
	var h [frameHead]byte
	copy(h[:], magic[:])
	binary.LittleEndian.PutUint32(h[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint64(h[8:], seq)
	body, front := sums(segment, h[:], payload)
	binary.LittleEndian.PutUint32(h[16:], body)
	binary.LittleEndian.PutUint32(h[20:], front)
	return append(append(dst, h[:]...), payload...)
}

// frontSum is the checksum that the head of a frame should carry.
func frontSum(segment uint64, head []byte) uint32 {
	var s [8]byte
	binary.LittleEndian.PutUint64(s[:], segment)
	return crc32.Update(crc32.Update(0, castagnoli, s[:]), castagnoli, head[:20])
}

// parseFrame reads the frame at the beginning of b.
func parseFrame(b []byte, segment uint64) (frame, verdict) {
	if len(b) < frameHead {
		n := min(len(b), len(magic))
		if bytes.Equal(b[:n], magic[:n]) {
			return frame{}, frameCut
		}
		return frame{}, frameBad
	}
	n := binary.LittleEndian.Uint32(b[4:])
	if !bytes.Equal(b[:4], magic[:]) || n > maxPayload || frontSum(segment, b) != binary.LittleEndian.Uint32(b[20:]) {
		return frame{}, frameBad
	}
	end := frameHead + int(n)
	if len(b) < end {
		return frame{}, frameCut
	}
	payload := b[frameHead:end]
	if body, _ := sums(segment, b, payload); body != binary.LittleEndian.Uint32(b[16:]) || bytes.IndexByte(payload, 0) >= 0 {
		return frame{}, frameBad
	}
	return frame{end: int64(end), seq: binary.LittleEndian.Uint64(b[8:]), payload: payload}, frameGood
}

// scan finds every record of a segment that verifies, and the holes between them.
// After a bad place it goes on at the next one that verifies.
func scan(b []byte, segment uint64) (frames []frame, holes []hole) {
	frames = make([]frame, 0, len(b)/200) // what most records are larger than
	for off := 0; off < len(b); {
		f, v := parseFrame(b[off:], segment)
		if v == frameGood {
			f.off, f.end = int64(off), int64(off)+f.end
			frames = append(frames, f)
			off = int(f.end)
			continue
		}
		next := off + 1
		for {
			i := bytes.Index(b[next:], magic[:])
			if i < 0 {
				next = len(b)
				break
			}
			next += i
			if _, v := parseFrame(b[next:], segment); v == frameGood {
				break
			}
			next++
		}
		torn := next == len(b) && (v == frameCut || len(bytes.Trim(b[off:], "\x00")) == 0)
		holes = append(holes, hole{int64(off), int64(next), torn})
		off = next
	}
	return frames, holes
}

func segmentName(n uint64) string { return fmt.Sprintf("%016x%s", n, suffix) }

// segmentNumber is the inverse of segmentName.
func segmentNumber(name string) (uint64, bool) {
	hex, ok := strings.CutSuffix(name, suffix)
	if !ok || len(hex) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(hex, 16, 64)
	return n, err == nil && segmentName(n) == name
}
