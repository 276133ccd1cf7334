package page

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Need is the environment variable that makes a test fail where no Chromium is found.
const Need = "PATCHLOG_NEED_BROWSER"

// Program is the environment variable that names the Chromium to start. It goes before those
// in PATH.
const Program = "PATCHLOG_CHROMIUM"

// What Chromium is started with. It reaches this machine and nothing else, and asks nobody for
// updates; pages that are not in front run as those that are.
var flags = map[string]any{
	"headless":                               true,
	"no-sandbox":                             true, // which root and containers cannot have
	"disable-gpu":                            true,
	"disable-dev-shm-usage":                  true,
	"disable-quic":                           true,
	"no-proxy-server":                        true,
	"host-resolver-rules":                    "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
	"no-first-run":                           true,
	"no-default-browser-check":               true,
	"disable-background-networking":          true,
	"disable-component-update":               true,
	"disable-sync":                           true,
	"disable-extensions":                     true,
	"disable-features":                       "Translate,MediaRouter,OptimizationHints",
	"disable-site-isolation-trials":          true, // frames are heard with their page
	"disable-background-timer-throttling":    true,
	"disable-backgrounding-occluded-windows": true,
	"disable-renderer-backgrounding":         true,
	"hide-scrollbars":                        true,
	"force-color-profile":                    "srgb",
	"password-store":                         "basic",
	"remote-debugging-pipe":                  true,
}

// find returns the path of a Chromium.
func find() (string, error) {
	if named := os.Getenv(Program); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("%s: %w", Program, err)
		}
		return path, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no Chromium is installed")
}

// require returns the path of a Chromium, or ends the test: it is skipped, or fails where
// there must be one.
func require(t testing.TB) string {
	t.Helper()
	path, err := find()
	if err == nil {
		return path
	}
	what := fmt.Sprintf("%v (apt-get install chromium, or name one in %s)", err, Program)
	if os.Getenv(Need) != "" {
		t.Fatalf("%s, and %s is set", what, Need)
	}
	t.Skip(what)
	return ""
}

// A browser is a Chromium that runs, with a profile of its own.
type browser struct {
	ctx  context.Context // of its first tab, from which the others are opened
	stop func()
}

func start(program string) (*browser, error) {
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(program)}
	for name, value := range flags {
		options = append(options, chromedp.Flag(name, value))
	}
	quiet := func(string, ...any) {} // events that a newer Chromium has and the driver does not know
	allocator, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocator, chromedp.WithLogf(quiet), chromedp.WithErrorf(quiet))
	b := &browser{ctx: ctx, stop: func() {
		closing, late := context.WithTimeout(ctx, patience)
		defer late()
		_ = chromedp.Cancel(closing) // one that is killed leaves files behind
		end()
		free()
	}}
	late := time.AfterFunc(patience, end)
	defer late.Stop()
	if err := chromedp.Do(ctx); err != nil {
		b.stop()
		return nil, fmt.Errorf("%s does not start: %w", program, err)
	}
	return b, nil
}

var (
	mu     sync.Mutex
	common *browser
)

// shared returns the browser that the tests of the process share, which the first of them
// starts.
func shared(t testing.TB) *browser {
	t.Helper()
	program := require(t)
	mu.Lock()
	defer mu.Unlock()
	if common == nil {
		b, err := start(program)
		if err != nil {
			t.Fatal(err)
		}
		common = b
	}
	return common
}

// Main runs the tests of a package and ends the browser that they share. It is what a
// TestMain passes to os.Exit.
func Main(m *testing.M) int {
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		if common != nil {
			common.stop()
			common = nil
		}
	}()
	return m.Run()
}
