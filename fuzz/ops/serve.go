package ops

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// Serve executes the operations that it reads, each in a goroutine, and writes the replies, in JSON. It writes an
// empty reply first, and returns at the end of the input, after all operations.
func (l *Local) Serve(in io.Reader, out io.Writer) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	replies := json.NewEncoder(out)
	reply := func(r Reply) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, replies.Encode(r))
	}
	reply(Reply{})
	calls := json.NewDecoder(in)
	for {
		var o Op
		err := calls.Decode(&o)
		if err != nil {
			wg.Wait()
			if err != io.EOF {
				errs = append(errs, err)
			}
			return errors.Join(slices.Clone(errs)...)
		}
		wg.Go(func() { reply(l.Call(o)) })
	}
}

// Process is a process that runs [Local.Serve]: the test binary again, with another environment.
type Process struct {
	Cmd   *exec.Cmd
	ended chan struct{} // closed when the process's output ends

	mu      sync.Mutex
	encoder *json.Encoder
	n       int
	waiting map[int]chan Reply
	stderr  strings.Builder
}

// Start starts a process with the variables added to the environment.
func Start(env ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{Cmd: exec.Command(self), ended: make(chan struct{}), waiting: map[int]chan Reply{}}
	p.Cmd.Env, p.Cmd.Stderr = append(os.Environ(), env...), &p.stderr
	in, err := p.Cmd.StdinPipe()
	out, outErr := p.Cmd.StdoutPipe()
	if err := errors.Join(err, outErr); err != nil {
		return nil, err
	}
	p.encoder = json.NewEncoder(in)
	if err := p.Cmd.Start(); err != nil {
		return nil, err
	}
	go p.listen(out)
	return p, nil
}

func (p *Process) listen(out io.Reader) {
	defer close(p.ended)
	replies := json.NewDecoder(bufio.NewReaderSize(out, 1<<16))
	if replies.Decode(&Reply{}) != nil {
		return
	}
	for {
		var r Reply
		if replies.Decode(&r) != nil { // the last line may be incomplete
			return
		}
		p.mu.Lock()
		reply := p.waiting[r.N]
		delete(p.waiting, r.N)
		p.mu.Unlock()
		reply <- r
	}
}

// Call implements [Caller]. A process that has ended gives the outcome [Gone].
func (p *Process) Call(o Op) Reply {
	reply := make(chan Reply, 1)
	p.mu.Lock()
	p.n++
	o.N = p.n
	p.waiting[o.N] = reply
	err := p.encoder.Encode(o)
	p.mu.Unlock()
	if err != nil {
		<-p.ended
	}
	select {
	case r := <-reply:
		return r
	case <-p.ended:
	}
	select {
	case r := <-reply: // it came before the end
		return r
	default:
		return Reply{Outcome: Gone, Err: "the process ended"}
	}
}

// Kill kills the process and waits for its end. It returns its stderr, and whether it had exited before.
func (p *Process) Kill() (stderr string, exited bool) {
	_ = p.Cmd.Process.Kill()
	<-p.ended
	_ = p.Cmd.Wait()
	return p.stderr.String(), p.Cmd.ProcessState.Exited()
}
