package page

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const (
	// envRequired is the environment variable that makes a test fail where there is no Chromium.
	envRequired = "PATCHLOG_NEED_BROWSER"
	// envChromium is the environment variable that names the Chromium to start, in place of those in PATH.
	envChromium = "PATCHLOG_CHROMIUM"
)

// flags are the arguments of Chromium. It reaches this machine and nothing else, and looks for no updates; pages
// in the background run as those in front do.
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
	"disable-site-isolation-trials":          true, // events of frames come with those of their page
	"disable-background-timer-throttling":    true,
	"disable-backgrounding-occluded-windows": true,
	"disable-renderer-backgrounding":         true,
	"hide-scrollbars":                        true,
	"force-color-profile":                    "srgb",
	"password-store":                         "basic",
	"remote-debugging-pipe":                  true,
}

// chromium returns the path of a Chromium, or ends the test: the test is skipped, or fails if a browser is required.
func chromium(t testing.TB) string {
	t.Helper()
	names := []string{"chromium", "chromium-browser", "google-chrome"}
	if name := os.Getenv(envChromium); name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv(envRequired) != "" {
		t.Fatalf("there is none of %q, and %s is set", names, envRequired)
	}
	t.Skipf("there is none of %q (apt-get install chromium, or name one in %s)", names, envChromium)
	return ""
}

// browser is the Chromium that the tests of the process share. The first test starts it.
var browser struct {
	sync.Mutex
	ctx  context.Context // of its first tab, from which the others are opened
	stop func()
}

func browserContext(t testing.TB) context.Context {
	t.Helper()
	program := chromium(t)
	browser.Lock()
	defer browser.Unlock()
	if browser.ctx != nil {
		return browser.ctx
	}
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(program)}
	for name, value := range flags {
		options = append(options, chromedp.Flag(name, value))
	}
	quiet := func(string, ...any) {} // of events that the driver does not know
	allocator, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocator, chromedp.WithLogf(quiet), chromedp.WithErrorf(quiet))
	late := time.AfterFunc(patience, end)
	defer late.Stop()
	if err := chromedp.Do(ctx); err != nil {
		end()
		free()
		t.Fatalf("%s does not start: %v", program, err)
	}
	browser.ctx, browser.stop = ctx, func() {
		closing, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_ = chromedp.Cancel(closing) // a browser that is killed leaves files behind
		end()
		free()
	}
	return ctx
}

// Main runs the tests of a package and ends the browser that they share. A TestMain passes it to os.Exit.
func Main(m *testing.M) int {
	defer func() {
		if browser.stop != nil {
			browser.stop()
		}
	}()
	return m.Run()
}
