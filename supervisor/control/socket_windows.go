package control

import (
	"errors"
	"net"

	"golang.org/x/sys/windows"
)

// listenPrivate relies on the access list that the file inherits from the user's
// profile: Windows has no modes.
func listenPrivate(path string) (net.Listener, error) { return net.Listen("unix", path) }

func refused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }
