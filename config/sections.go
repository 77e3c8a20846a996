package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"mcpbridge/messages"
)

// projectKeys are the top-level keys that an untrusted project may use.
var projectKeys = map[string]bool{"version": true, "mcp_servers": true, "permissions": true}

// sections is the table of the top-level keys, apart from those that the loader takes
// itself (version, mcp_servers, defaults, permissions). Each reader starts from the
// defaults, so that a higher layer replaces a section as a whole.
func (d *decoder) sections(c *Config, home string) map[string]func(value) {
	def := Default()
	return map[string]func(value){
		"enabled":   d.boolInto(&c.Enabled),
		"ask_via":   wordInto(d, &c.AskVia, "none", "client"),
		"list_wait": d.durationInto(&c.ListWait),
		"views":     func(v value) { c.Views = d.views(v) },
		"discovery": func(v value) {
			c.Discovery = def.Discovery
			d.object(v, map[string]func(value){"meta_tools": wordInto(d, &c.Discovery.MetaTools, "auto", "always", "never"),
				"over_tokens": d.positive(&c.Discovery.OverTokens)})
		},
		"clients": func(v value) {
			c.Clients = def.Clients
			d.object(v, map[string]func(value){"queue": d.positive(&c.Clients.Queue)})
		},
		"client_info": func(v value) {
			c.ClientInfo = def.ClientInfo
			d.object(v, map[string]func(value){"name": d.textInto(&c.ClientInfo.Name), "version": d.textInto(&c.ClientInfo.Version)})
			if c.ClientInfo.Name == "" {
				d.errorf(v, "name must not be empty")
				c.ClientInfo.Name = def.ClientInfo.Name
			}
		},
		"reserved_names":  d.textsInto(&c.ReservedNames),
		"allowed_hosts":   d.textsInto(&c.AllowedHosts),
		"allowed_origins": func(v value) { d.origins(v, c) },
		"listen":          func(v value) { d.listen(v, c) },
		"auth":            func(v value) { d.auth(v, c, home) },
		"tls":             func(v value) { d.tls(v, c, home) },
		"journal": func(v value) {
			c.Journal = def.Journal
			d.object(v, map[string]func(value){"fsync": wordInto(d, &c.Journal.Fsync, "always", "interval", "off"),
				"keep": d.durationInto(&c.Journal.Keep), "max_size": d.positiveSize(&c.Journal.MaxSize)})
			if c.Journal.Keep == 0 {
				d.errorf(d.at["journal.keep"], "must be above 0")
				c.Journal.Keep = def.Journal.Keep
			}
		},
		"log": func(v value) {
			c.Log = def.Log
			d.object(v, map[string]func(value){"file": d.pathInto(&c.Log.File, home),
				"max_size": d.positiveSize(&c.Log.MaxSize), "keep": d.positive(&c.Log.Keep)})
		},
	}
}

// positive reads a whole number above 0; anything else leaves the default.
func (d *decoder) positive(p *int) func(value) {
	return func(v value) {
		n := *p
		d.intInto(&n)(v)
		if n <= 0 {
			d.errorf(v, "must be above 0")
			return
		}
		*p = n
	}
}

func (d *decoder) positiveSize(p *int64) func(value) {
	return func(v value) {
		n := *p
		d.sizeInto(&n)(v)
		if n <= 0 {
			d.errorf(v, "must be above 0")
			return
		}
		*p = n
	}
}

// pathInto reads a file name and makes it absolute.
func (d *decoder) pathInto(p *string, home string) func(value) {
	return func(v value) {
		if s, ok := d.text(v); ok && s != "" {
			*p = resolvePath(s, v.doc.base, home)
		}
	}
}

// views drops a view that cannot be read: an empty field of a view matches
// everything, so half of one would show more than was meant.
func (d *decoder) views(v value) map[string]View {
	fs, ok := d.fields(v)
	if !ok {
		return nil
	}
	out := map[string]View{}
	for _, f := range fs {
		before := d.failed
		var w View
		d.strictObject(f.value, map[string]func(value){
			"effects": func(v value) {
				vs, _ := d.items(v)
				for _, e := range vs {
					if x, ok := d.effect(e); ok {
						w.Effects = append(w.Effects, x)
					}
				}
			},
			"tools":   d.globsInto(&w.Tools),
			"servers": d.globsInto(&w.Servers),
		})
		for _, key := range []string{"effects", "tools", "servers"} {
			if at, ok := d.at[join(f.rel, key)]; ok && at.node.Kind == yaml.SequenceNode && len(at.node.Content) == 0 {
				d.errorf(at, "the list is empty, so nothing would be left; leave the key out to match everything")
			}
		}
		if d.failed == before && !f.dup {
			out[f.key] = w
		}
	}
	return out
}

func (d *decoder) origins(v value, c *Config) {
	vs, ok := d.items(v)
	if !ok {
		return
	}
	c.AllowedOrigins = nil
	for _, e := range vs {
		s, ok := d.text(e)
		if !ok {
			continue
		}
		if u, err := url.Parse(s); s != "*" && (err != nil || u.Scheme == "" || u.Host == "" || strings.Trim(u.Path, "/") != "") {
			d.errorf(e, "expected an origin such as https://app.example.com, without a path")
			continue
		}
		c.AllowedOrigins = append(c.AllowedOrigins, strings.TrimSuffix(s, "/"))
	}
}

func (d *decoder) listen(v value, c *Config) {
	s, ok := d.text(v)
	if !ok {
		return
	}
	_, port, err := net.SplitHostPort(s)
	if n, e := strconv.Atoi(port); err != nil || e != nil || n < 0 || n > 65535 {
		d.errorf(v, "expected HOST:PORT, such as 127.0.0.1:7332")
		return
	}
	c.Listen = s
}

// auth drops a token that cannot be read; without any, the generated one counts.
func (d *decoder) auth(v value, c *Config, home string) {
	c.Auth = Auth{}
	d.object(v, map[string]func(value){
		"none": d.boolInto(&c.Auth.None),
		"tokens": func(v value) {
			fs, _ := d.fields(v)
			for _, f := range fs {
				before := d.failed
				var ref TokenRef
				if f.node.Kind == yaml.ScalarNode {
					d.errorf(f.value, "a token is never written here: name where it is, {file: PATH} or {env: NAME}")
					continue
				}
				d.object(f.value, map[string]func(value){"file": d.pathInto(&ref.File, home), "env": d.textInto(&ref.Env)})
				if d.failed == before && (ref.File == "") == (ref.Env == "") {
					d.errorf(f.value, "expected either file: PATH or env: NAME")
				}
				if d.failed > before || f.dup {
					continue
				}
				if c.Auth.Tokens == nil {
					c.Auth.Tokens = map[string]TokenRef{}
				}
				c.Auth.Tokens[f.key] = ref
			}
		},
	})
	if c.Auth.None && len(c.Auth.Tokens) > 0 {
		d.errorf(v, "none: true and tokens contradict each other; tokens are required until one of them is removed")
		c.Auth.None = false
	}
}

func (d *decoder) tls(v value, c *Config, home string) {
	c.TLS = TLS{}
	d.object(v, map[string]func(value){"cert": d.pathInto(&c.TLS.Cert, home), "key": d.pathInto(&c.TLS.Key, home),
		"client_ca": d.pathInto(&c.TLS.ClientCA, home)})
	if (c.TLS.Cert == "") != (c.TLS.Key == "") || (c.TLS.ClientCA != "" && c.TLS.Cert == "") {
		d.errorf(v, "cert and key belong together (and client_ca needs both)")
		c.TLS = TLS{}
	}
}

// rules reads a permissions block. A rule that cannot be read becomes one that
// refuses everything that reaches it: the gate fails closed.
func (d *decoder) rules(f field) []Rule {
	source := func(v value) string {
		return fmt.Sprintf("%s (%s:%d)", v.path, filepath.Base(v.doc.file), v.node.Line)
	}
	if f.node.Kind != yaml.SequenceNode || f.dup {
		switch {
		case f.dup: // reported as a duplicate
		case isNull(f.node):
			d.errorf(f.value, "the block is empty; write [] to deny everything, or leave the key out")
		default:
			d.errorf(f.value, "expected a list of rules such as - {effect: read_only, action: allow}")
		}
		return []Rule{denyAll(source(f.value) + " is broken")}
	}
	vs, _ := d.items(f.value)
	out := make([]Rule, 0, len(vs))
	for _, v := range vs {
		before := d.failed
		r := Rule{Source: source(v)}
		acted := false
		d.strictObject(v, map[string]func(value){
			"server": d.globInto(&r.Server), "tool": d.globInto(&r.Tool),
			"client": d.globInto(&r.Client), "view": d.globInto(&r.View),
			"effect": func(v value) {
				if e, ok := d.effect(v); ok {
					r.Effect = &e
				}
			},
			"action": func(v value) {
				if w, ok := d.word(v, "allow", "ask", "deny"); ok {
					_ = r.Action.UnmarshalText([]byte(w)) // the words are the type's own
					acted = true
				}
			},
		})
		if d.failed == before && !acted {
			d.errorf(v, "a rule needs an action: allow, ask or deny")
		}
		if d.failed > before {
			r = denyAll(r.Source + " is broken")
		}
		out = append(out, r)
	}
	return out
}

// globInto reads one name or pattern of a rule.
func (d *decoder) globInto(p *string) func(value) {
	return func(v value) {
		s, ok := d.text(v)
		if !ok {
			return
		}
		if msg := badGlob(s); msg != "" {
			d.errorf(v, "%s", msg)
			return
		}
		*p = s
	}
}

// projectRules keeps what an untrusted project may say: deny and ask.
func (d *decoder) projectRules(f field) []Rule {
	all := d.rules(f)
	out := all[:0:0]
	for i, r := range all {
		if r.Action != messages.Allow {
			out = append(out, r)
			continue
		}
		at := f.value
		if f.node.Kind == yaml.SequenceNode && i < len(f.node.Content) {
			at = f.child(f.node.Content[i], "["+strconv.Itoa(i)+"]")
		}
		d.warnf(at, "ignored: a project may only add deny and ask rules; put it into your own configuration, or start with --trust-project")
	}
	return out
}
