package config

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"
)

// dialect is another tool's way to write a configuration.
type dialect struct {
	name  string   // as --from has it
	tool  string   // for people
	files []string // ends of paths that are this tool's
	words []string // words in a file's name that also say so
	marks []string // keys of entries that only this tool has
	unit  string   // of a plain timeout: s, ms, or "" where nobody knows
	bare  bool     // $NAME is a reference
	brace bool     // {env:NAME} and {file:PATH} are references
	shell bool     // $(command) in a value is run by the tool
	urlIs Transport
}

// generic is for files that no tool can be told from.
var generic = &dialect{name: "generic", tool: "unknown tool"}

// dialects in the order in which they are tried.
var dialects = []*dialect{
	{name: "claude", tool: "Claude", files: []string{".mcp.json", ".claude.json", "claude_desktop_config.json", ".claude/settings.json"},
		words: []string{"claude"}, marks: []string{"headersHelper"}},
	{name: "cursor", tool: "Cursor", files: []string{".cursor/mcp.json"}, words: []string{"cursor"}},
	{name: "vscode", tool: "VS Code", files: []string{".vscode/mcp.json", ".vscode/settings.json", "Code/User/mcp.json", "Code/User/settings.json"},
		words: []string{"vscode"}},
	{name: "copilot", tool: "Copilot CLI", files: []string{".copilot/mcp-config.json"}, words: []string{"copilot", "copilotcli"}},
	{name: "windsurf", tool: "Windsurf", files: []string{"windsurf/mcp_config.json", "antigravity/mcp_config.json"},
		words: []string{"windsurf", "antigravity"}, marks: []string{"serverUrl"}},
	{name: "cline", tool: "Cline", files: []string{"cline_mcp_settings.json"}, words: []string{"cline"}, marks: []string{"transportType"}, unit: "s"},
	{name: "roo", tool: "Roo Code", files: []string{".roo/mcp.json", ".kilocode/mcp.json", "mcp_settings.json"},
		words: []string{"roo", "kilo", "kilocode"}, marks: []string{"watchPaths"}, unit: "s"},
	{name: "kiro", tool: "Kiro", files: []string{".kiro/settings/mcp.json", ".amazonq/mcp.json", ".aws/amazonq/mcp.json"},
		words: []string{"kiro", "amazonq"}, unit: "ms", bare: true},
	{name: "gemini", tool: "Gemini CLI", files: []string{".gemini/settings.json", ".qwen/settings.json", "gemini-extension.json"},
		words: []string{"gemini", "qwen"}, marks: []string{"httpUrl"}, unit: "ms", bare: true, urlIs: SSE},
	{name: "codex", tool: "Codex", files: []string{".codex/config.toml", ".codex/.mcp.json"}, words: []string{"codex", "codexjson"},
		marks: []string{"http_headers", "env_http_headers", "bearer_token_env_var", "startup_timeout_sec", "tool_timeout_sec"}, unit: "s"},
	{name: "zed", tool: "Zed", files: []string{".zed/settings.json", "zed/settings.json"}, words: []string{"zed"}},
	{name: "goose", tool: "Goose", files: []string{"goose/config.yaml"}, words: []string{"goose"}, unit: "s"},
	{name: "opencode", tool: "opencode", files: []string{"opencode.json", "opencode.jsonc"}, words: []string{"opencode"}, unit: "ms", brace: true},
	{name: "crush", tool: "Crush", files: []string{"crush.json", ".crush.json"}, words: []string{"crush"},
		marks: []string{"disable_standalone_sse"}, unit: "s", bare: true, shell: true},
	{name: "lmstudio", tool: "LM Studio", files: []string{".lmstudio/mcp.json"}, words: []string{"lmstudio"}},
	{name: "librechat", tool: "LibreChat", files: []string{"librechat.yaml", "librechat.yml"}, words: []string{"librechat"}, unit: "ms"},
	{name: "mcphub", tool: "mcphub.nvim", files: []string{"mcphub/servers.json"}, words: []string{"mcphub"}},
	{name: "docker", tool: "Docker MCP", files: []string{".docker/mcp/config.yaml", ".docker/mcp/registry.yaml", ".docker/mcp/tools.yaml"},
		words: []string{"dockermcp"}},
	generic,
}

// ourName is what --from and reports call our own format.
const ourName = "mcpbridge"

// Dialects lists the names that ImportOptions.From may have, besides "auto".
func Dialects() []string {
	out := make([]string, len(dialects))
	for i, d := range dialects {
		out[i] = d.name
	}
	slices.Sort(out)
	return out
}

func dialectNamed(name string) *dialect {
	for _, d := range dialects {
		if d.name == name {
			return d
		}
	}
	return nil
}

// format is how a file is written down.
type format string

const (
	formatYAML format = "YAML"
	formatJSON format = "JSON"
	formatTOML format = "TOML"
)

// formatOf tells the format by a file's name; where that says nothing, by its first
// character.
func formatOf(file string, data []byte) format {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".yaml", ".yml":
		return formatYAML
	case ".json", ".jsonc", ".json5", ".code-workspace":
		return formatJSON
	case ".toml":
		return formatTOML
	}
	if root, err := parseJSON(file, data); err == nil && root != nil && root.Kind != yaml.ScalarNode {
		return formatJSON
	}
	if _, err := parseYAML(file, data); err == nil {
		return formatYAML
	}
	if strings.HasPrefix(strings.TrimLeft(string(data), " \t\r\n"), "{") {
		return formatJSON
	}
	if _, err := parseTOML(file, data); err == nil {
		return formatTOML
	}
	return formatYAML
}

var nameWord = regexp.MustCompile(`[A-Za-z]+`)

// recognise tells whose file this is, by its name and by what is in it. Nil is our own
// format.
func recognise(file string, f format, root *yaml.Node, loads bool) *dialect {
	if isOurs(f, root, loads) {
		return nil
	}
	path := strings.ToLower(filepath.ToSlash(absolute(file)))
	var best *dialect
	longest := 0
	for _, d := range dialects {
		if !d.writes(f) {
			continue
		}
		for _, end := range d.files {
			if len(end) > longest && strings.HasSuffix(path, "/"+strings.ToLower(end)) {
				best, longest = d, len(end)
			}
		}
	}
	if best != nil {
		return best
	}
	base := strings.ToLower(filepath.Base(file))
	words := nameWord.FindAllString(strings.TrimSuffix(base, filepath.Ext(base)), -1)
	for _, d := range dialects {
		if d.writes(f) && slices.ContainsFunc(d.words, func(w string) bool { return slices.Contains(words, w) }) {
			return d
		}
	}
	if d := recogniseContent(f, root); d != nil {
		return d
	}
	if f == formatYAML {
		return nil
	}
	return generic
}

// writes reports whether a tool has files of a format.
func (d *dialect) writes(f format) bool {
	switch d.name {
	case "goose", "librechat", "docker":
		return f == formatYAML
	case "codex":
		return f != formatYAML
	}
	return f == formatJSON
}

// isOurs knows our own format: YAML that holds one of our keys, and JSON that says more
// than servers in our words.
func isOurs(f format, root *yaml.Node, loads bool) bool {
	if f == formatTOML {
		return false
	}
	if f == formatYAML && loads {
		return true // a layer, or --config: read as ours, so that a slip is told as one
	}
	if root == nil {
		return f == formatYAML
	}
	if f == formatYAML {
		return get(root, "mcp_servers") != nil || holdsOurs(root)
	}
	v := get(root, "version")
	return get(root, "mcp_servers") != nil && (holdsOurs(root) || v != nil && v.Value == "1")
}

// ownKeys are the top-level keys that only our own format has.
var ownKeys = sync.OnceValue(func() map[string]bool {
	out := map[string]bool{"permissions": true, "defaults": true}
	for k := range new(decoder).sections(Default(), "") {
		out[k] = true
	}
	return out
})

func holdsOurs(root *yaml.Node) bool {
	if root.Kind == yaml.MappingNode {
		for i := 0; i < len(root.Content); i += 2 {
			if ownKeys()[root.Content[i].Value] {
				return true
			}
		}
	}
	return false
}

// recogniseContent tells a tool by the keys that only it has.
func recogniseContent(f format, root *yaml.Node) *dialect {
	has := func(key string) bool { return get(root, key) != nil }
	switch {
	case f == formatTOML:
		return dialectNamed("codex")
	case f == formatYAML:
		for _, e := range values(get(root, "extensions")) {
			if get(e, "cmd") != nil || get(e, "type") != nil {
				return dialectNamed("goose")
			}
		}
		if has("mcpServers") && (has("interface") || has("endpoints") || has("mcpSettings") || has("version")) {
			return dialectNamed("librechat")
		}
		return nil
	case has("nativeMCPServers"):
		return dialectNamed("mcphub")
	case has("context_servers"):
		return dialectNamed("zed")
	case has("mcpServers"):
	case get(get(root, "mcp"), "servers") != nil, has("servers"), has("inputs"):
		return dialectNamed("vscode")
	case has("mcp"):
		for _, e := range values(get(root, "mcp")) {
			if t := get(e, "type"); t != nil && (t.Value == "local" || t.Value == "remote") {
				return dialectNamed("opencode")
			}
		}
		return dialectNamed("crush")
	}
	entries := values(get(root, "mcpServers"))
	if entries == nil {
		entries = values(root)
	}
	for _, d := range dialects {
		for _, e := range entries {
			for _, m := range d.marks {
				if get(e, m) != nil {
					return d
				}
			}
		}
	}
	return nil
}

// values lists what the keys of a mapping hold.
func values(n *yaml.Node) (out []*yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 1; i < len(n.Content); i += 2 {
		out = append(out, resolveAlias(n.Content[i]))
	}
	return out
}
