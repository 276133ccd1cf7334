package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildInfo is what 'patchlog version' prints. A field that the build does not know is "".
type buildInfo struct {
	Version  string `json:"version"`  // of the module: a tag, a pseudo-version or (devel)
	Revision string `json:"revision"` // of the version control system
	Modified bool   `json:"modified"` // the tree had changes that were not committed
	Go       string `json:"go"`
	Platform string `json:"platform"`
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

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the revision and the Go version of this build",
		Long: `With --json it is {"version","revision","modified","go","platform"}. The version is
that of the module, as a tag or as Go makes it from a revision; (devel) if the build does not
know it. The revision is "" where the build had no repository, as with go install ...@version.`,
		Example: examples("patchlog version --json"),
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.out.document(currentBuild())
			}
			return a.out.linef("%s", currentBuild())
		},
	}
}
