package command

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestBuildInfo(t *testing.T) {
	on := " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	set := func(pairs ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}
		for i := 0; i < len(pairs); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return info
	}
	for want, info := range map[string]*debug.BuildInfo{
		"patchlog (devel)" + on:                nil,
		"patchlog v1.2.3" + on:                 set(),
		"patchlog v1.2.3 (abc)" + on:           set("vcs.revision", "abc", "vcs.modified", "false"),
		"patchlog v1.2.3 (abc, modified)" + on: set("vcs.revision", "abc", "vcs.modified", "true"),
	} {
		if got := buildInfoOf(info).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestVersion(t *testing.T) {
	if got, want := must(t, "", "--version"), currentBuild().String()+"\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
}
