package upstream

import (
	"io"
	"os"
)

func readNow(*os.File, []byte) (int, error) { return 0, io.EOF }
