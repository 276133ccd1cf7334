package command

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// buildInfo is what 'patchlog --version' prints. A field that the build does not know is "".
type buildInfo struct {
	Version  string // of the module: a tag, a pseudo-version or (devel)
	Revision string // of the version control system
	Modified bool   // the tree had changes that were not committed
	Go       string
	Platform string
}

// buildInfoOf reads what the Go command has put into a binary; info may be nil.
func buildInfoOf(info *debug.BuildInfo) buildInfo {
	b := buildInfo{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b buildInfo) String() string {
	text := "patchlog " + b.Version
	if b.Revision != "" {
		text += " (" + b.Revision + map[bool]string{true: ", modified"}[b.Modified] + ")"
	}
	return fmt.Sprintf("%s %s %s", text, b.Go, b.Platform)
}

func currentBuild() buildInfo {
	info, _ := debug.ReadBuildInfo()
	return buildInfoOf(info)
}
