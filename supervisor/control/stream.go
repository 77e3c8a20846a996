package control

import (
	"bufio"
	"context"
	"net"
	"net/http"
)

// upgrade is the protocol name of GET /v1/stream.
const upgrade = "mcpbridge-stdio"

// stream hands the raw connection to the gateway: newline-delimited MCP both ways.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	if s.o.ServeStream == nil {
		fail(w, &Error{Code: CodeNotFound, Status: http.StatusNotFound, Message: "this bridge serves no streams"})
		return
	}
	if r.Header.Get("Upgrade") != upgrade {
		fail(w, &Error{Code: CodeBadRequest, Status: http.StatusUpgradeRequired, Message: "use `bridgectl stdio`, which upgrades the connection"})
		return
	}
	view := r.URL.Query().Get("view")
	if !s.o.Bridge.Catalogue().HasView(view) {
		fail(w, &Error{Code: CodeBadRequest, Message: "no view is called \"" + view + "\"", Hint: "views are defined under views: in the configuration"})
		return
	}
	raw, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		fail(w, &Error{Code: CodeFailed, Status: http.StatusInternalServerError, Message: err.Error()})
		return
	}
	conn := &streamConn{Conn: raw, r: buf.Reader}
	s.streams.Add(1)
	defer s.streams.Done()
	defer conn.Close()
	// A stream that does not look at its context ends with its connection.
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + upgrade + "\r\n\r\n"); err != nil {
		return
	}
	if err := buf.Flush(); err != nil {
		return
	}
	if err := s.o.ServeStream(ctx, conn, LocalClient, view); err != nil && ctx.Err() == nil {
		s.o.Logger.Debug("stdio stream ended", "err", err)
	}
}

// streamConn reads first what was buffered behind the HTTP head.
type streamConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *streamConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite ends one direction, so that the other side reads to the end.
func (c *streamConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Conn.Close()
}
