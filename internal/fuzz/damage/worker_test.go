package damage

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The store opens damaged files in a separate process, because that process may crash, hang, or run out of memory.

const workerDir = "PATCHLOG_DAMAGE_WORKER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(workerDir); dir != "" {
		if err := work(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// job describes one damage that a worker tests.
type job struct {
	Wreck, Kind int
	Bit         int // bit of the used parts to flip instead, from 1; see [wreck.inUse]
	Seed        uint64
	Control     string // name of a planted flaw
}

type reply struct {
	Wrong  []string
	Counts map[string]int
	Peak   int64 // peak memory in bytes during the job, less the memory before the job
	Size   int64 // size of the file at the end of the job
}

func work(dir string) error {
	wrecks := make([]*wreck, len(shapes))
	for i := range wrecks {
		file, err := os.Open(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		if err := gob.NewDecoder(file).Decode(&wrecks[i]); err != nil {
			return err
		}
		file.Close()
		wrecks[i].tree = treeOf(wrecks[i].Data)
	}
	debug.SetGCPercent(20) // keep the garbage in the measured memory small
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var j job
		if err := in.Decode(&j); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		at, err := os.MkdirTemp(dir, "try")
		if err != nil {
			return err
		}
		debug.FreeOSMemory()
		began := memoryBytes("VmRSS:")
		_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // resets the peak memory (VmHWM)
		r := wrecks[j.Wreck].run(j, at)
		r.Peak = memoryBytes("VmHWM:") - began
		if info, err := os.Stat(filepath.Join(at, "log.db")); err == nil {
			r.Size = info.Size()
		}
		if err := os.RemoveAll(at); err != nil {
			return err
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

// memoryBytes returns a figure in bytes about the memory of this process, from /proc. If the figure is unavailable,
// it returns 0.
func memoryBytes(what string) (bytes int64) {
	text, _ := os.ReadFile("/proc/self/status")
	if _, after, ok := strings.Cut(string(text), what); ok {
		_, _ = fmt.Sscan(after, &bytes)
	}
	return bytes << 10
}

type worker struct {
	dir    string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr bytes.Buffer
	jobs   int
}

// workerJobs is the number of jobs that a worker runs before it is replaced. It is replaced because it keeps the
// memory maps of files that a job has abandoned.
const workerJobs = 200

func newWorker(t *testing.T, wrecks []*wreck) *worker {
	w := &worker{dir: t.TempDir()}
	for i, wreck := range wrecks {
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(wreck); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.dir, fmt.Sprint(i)), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(w.end)
	return w
}

func (w *worker) start() error {
	w.end()
	w.stderr.Reset()
	w.cmd = exec.Command(os.Args[0])
	w.cmd.Env = append(os.Environ(), workerDir+"="+w.dir)
	w.cmd.Stderr = &w.stderr
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	w.out, w.jobs = json.NewDecoder(out), 0
	return w.cmd.Start()
}

func (w *worker) end() {
	if w.cmd != nil {
		_ = w.in.Close()
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
		w.cmd = nil
	}
}

// jobTimeout is the time after which a job is considered to hang, even on a busy machine.
const jobTimeout = 20 * time.Minute

// do runs a job in the worker. If the process ends or hangs, the error says so.
func (w *worker) do(j job) (r reply, err error) {
	if w.cmd == nil || w.jobs == workerJobs {
		if err := w.start(); err != nil {
			return r, err
		}
	}
	w.jobs++
	if err := json.NewEncoder(w.in).Encode(j); err != nil {
		return r, err
	}
	slow := time.AfterFunc(jobTimeout, func() { _ = w.cmd.Process.Signal(syscall.SIGQUIT) })
	err = w.out.Decode(&r)
	hangs := !slow.Stop()
	if err == nil {
		return r, nil
	}
	_ = w.cmd.Wait()
	w.cmd = nil
	stderr := w.stderr.String()
	if hangs {
		return r, fmt.Errorf("it hangs:\n%.8000s", stderr)
	}
	return r, fmt.Errorf("the process ended:\n%.8000s", stderr)
}
