package page

import (
	"path/filepath"
	"strings"
	"testing"
)

// Where there is no Chromium a test is skipped and says what to install, or fails if there must be one.
func TestNoChromium(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, named := range []string{"", filepath.Join(t.TempDir(), "none")} {
		t.Setenv(Program, named)
		t.Setenv(Need, "")
		open := func(t testing.TB) { Open(t, "http://127.0.0.1", Options{}) }
		if tried := try(t, open); !strings.Contains(tried.skipped, "apt-get install chromium") || len(tried.failures) > 0 {
			t.Errorf("%q: skipped with %q, failures %q", named, tried.skipped, tried.failures)
		}
		t.Setenv(Need, "1")
		mustFail(t, open, "apt-get install chromium, or name one in "+Program+"), and "+Need+" is set")
	}
}

func TestChromiumDoesNotStart(t *testing.T) {
	if _, err := start("/bin/false"); err == nil || !strings.Contains(err.Error(), "/bin/false does not start") {
		t.Errorf("%v", err)
	}
}

func TestNamedChromium(t *testing.T) {
	program := require(t)
	t.Setenv("PATH", t.TempDir())
	t.Setenv(Program, program)
	if got, err := find(); got != program || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
