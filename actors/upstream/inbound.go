package upstream

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"mcpbridge/internal/rawjson"
	"mcpbridge/messages"
)

var bom = []byte("\xef\xbb\xbf")

// envelope is the top level of one JSON-RPC message, in place.
type envelope struct {
	version, id, method, params, result, err []byte
}

// inbound takes one frame off a stream: a message, a batch, or noise. It is called
// by one goroutine per stream, keeps nothing of a frame that is not owned, and
// never blocks on the bridge.
func (m *mux) inbound(f frame) {
	if f.over {
		m.oversized(f)
		return
	}
	line := bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(f.data), bom))
	if len(line) == 0 {
		return
	}
	if line[0] != '{' && line[0] != '[' {
		m.noise.add(1)
		return
	}
	if !json.Valid(line) {
		if !f.cut { // the rest of it died with the server
			m.broken(line)
		}
		return
	}
	if line[0] == '{' {
		m.message(line, f.owned)
		return
	}
	any := false
	rawjson.Array(line, func(v []byte) bool {
		if rawjson.IsObject(v) {
			any = true
			m.message(v, f.owned)
		}
		return true
	})
	if !any {
		m.noise.add(1)
	}
}

// message routes one valid JSON object.
func (m *mux) message(obj []byte, owned bool) {
	var e envelope
	rawjson.Fields(obj, func(k, v []byte) {
		switch string(k) {
		case "jsonrpc":
			e.version = v
		case "id":
			e.id = v
		case "method":
			e.method = v
		case "params":
			e.params = v
		case "result":
			e.result = v
		case "error":
			e.err = v
		}
	})
	if e.version != nil || !rawjson.IsNull(e.id) && (e.result != nil || e.err != nil) {
		m.touch() // else a log object
	}
	switch {
	case e.method == nil && !rawjson.IsNull(e.id):
		m.response(&e, owned)
	case e.method == nil && e.version != nil:
		// An error without an id (the server could not read something): it
		// belongs to nobody.
		m.stray.Add(1)
	case string(e.version) != `"2.0"` || len(e.method) == 0 || e.method[0] != '"':
		m.noise.add(1) // a log object
	case rawjson.IsNull(e.id):
		m.notification(&e)
	default:
		m.request(obj)
	}
}

func (m *mux) response(e *envelope, owned bool) {
	id, ok := asID(e.id)
	if !ok || e.version == nil && e.result == nil && e.err == nil {
		m.unknown(e)
		return
	}
	if id < firstRawID {
		if !m.sdkAnswer(id, bytes.Clone(e.result), sdkError(e)) {
			m.unknown(e)
		}
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.table[id]
	if p == nil || !p.entered { // ids count up: one that was not sent yet may be guessed
		m.unknown(e)
		return
	}
	keep := func(b []byte) json.RawMessage {
		if owned && len(b) > readBuffer {
			return b[:len(b):len(b)]
		}
		return bytes.Clone(b)
	}
	switch {
	case rawjson.IsObject(e.err):
		m.settleLocked(p, messages.Reply{Kind: messages.ReplyError, Raw: keep(e.err)})
	case rawjson.IsNull(e.err) && rawjson.IsObject(e.result):
		m.settleLocked(p, messages.Reply{Kind: messages.ReplyResult, Raw: keep(e.result)})
	default:
		m.settleLocked(p, messages.Reply{Kind: messages.ReplyProtocol, Err: "the server's answer holds neither a result object nor an error object"})
	}
}

// unknown counts an answer that nobody waits for; what is no JSON-RPC is noise.
func (m *mux) unknown(e *envelope) {
	if e.version == nil {
		m.noise.add(1)
		return
	}
	m.stray.Add(1)
}

// sdkError reads the error of an answer to the SDK leniently.
func sdkError(e *envelope) *jsonrpc.Error {
	if rawjson.IsNull(e.err) {
		if e.result == nil {
			return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the answer holds neither result nor error"}
		}
		return nil
	}
	out := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the server sent an error that is no JSON-RPC error object"}
	rawjson.Fields(e.err, func(k, v []byte) {
		switch string(k) {
		case "code":
			_ = json.Unmarshal(v, &out.Code)
		case "message":
			out.Message, _ = asString(v)
		case "data":
			out.Data = bytes.Clone(v)
		}
	})
	return out
}

// notification keeps what the bridge wants of a server's notifications. None goes
// to the SDK, whose queue a flood would grow without bound.
func (m *mux) notification(e *envelope) {
	switch string(e.method) {
	case `"notifications/tools/list_changed"`:
		m.onListChanged()
	case `"notifications/progress"`:
		var token []byte
		rawjson.Fields(e.params, func(k, v []byte) {
			if string(k) == "progressToken" {
				token = v
			}
		})
		id, ok := asID(token)
		if !ok {
			return
		}
		m.mu.Lock()
		p := m.table[id]
		m.mu.Unlock()
		if p != nil && p.progress != nil {
			p.progress(bytes.Clone(e.params))
		}
	}
}

// request passes a server's request to the SDK, which answers ping and refuses the
// rest: the bridge advertises no capability.
func (m *mux) request(obj []byte) {
	if m.serverReqs.Load() >= maxServerRequests {
		m.noise.add(1)
		return
	}
	msg, err := jsonrpc.DecodeMessage(obj)
	if err != nil {
		m.noise.add(1)
		return
	}
	m.serverReqs.Add(1)
	m.toSDK(msg)
}

// broken handles a line that begins like a message and is not valid JSON: several
// messages on one line, a broken answer to one of our requests, or noise.
func (m *mux) broken(line []byte) {
	dec := json.NewDecoder(bytes.NewReader(line))
	var parts []json.RawMessage
	const most = 64 // messages that somebody forgot to end; more of them is no accident
	for len(parts) <= most {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if err == io.EOF {
			for _, p := range parts {
				if rawjson.IsObject(p) {
					m.message(p, true)
				}
			}
			return
		}
		if err != nil {
			break
		}
		parts = append(parts, raw)
	}
	m.noise.add(1)
	if id, ok := sniffHead(line); ok && id >= firstRawID {
		m.fail(id, messages.Reply{Kind: messages.ReplyProtocol, Err: "the server's answer is not valid JSON"})
	}
}

// oversized handles a line over the frame cap.
func (m *mux) oversized(f frame) {
	if !f.found || !m.fail(f.id, messages.Reply{Kind: messages.ReplyTooLarge, Err: "the answer is larger than limits.frame_bytes"}) {
		m.noise.add(1)
	}
}

// fail settles whoever waits for the id without an answer that could be read.
func (m *mux) fail(id int64, r messages.Reply) bool {
	if id < firstRawID {
		return m.sdkAnswer(id, nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: r.Err})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.table[id]
	if p == nil || !p.entered {
		return false
	}
	m.settleLocked(p, r)
	return true
}
