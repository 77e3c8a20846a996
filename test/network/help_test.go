package network

import "bytes"

func contains(b []byte, s string) bool { return bytes.Contains(b, []byte(s)) }
