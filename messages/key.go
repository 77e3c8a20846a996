package messages

// Key names one instance of a server. Everything that is scheduled, counted or
// supervised is keyed by it. Instance is empty for the one shared instance that
// every server has; `sessions: per_client` will fill it with the client's name.
type Key struct {
	Server   string
	Instance string
}

// String renders the key for people: "fs", or "fs@client" for a private instance.
func (k Key) String() string {
	if k.Instance == "" {
		return k.Server
	}
	return k.Server + "@" + k.Instance
}
