package ops

import (
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"strings"
)

// stream combines the two ends of a process's pipes.
type stream struct {
	io.Reader
	io.WriteCloser
}

// service is the RPC service of a process.
type service struct{ *Local }

// Call executes an operation.
func (s service) Call(o Op, r *Reply) error {
	*r = s.Local.Call(o)
	return nil
}

// Serve reads operations, executes each in a goroutine, and writes the replies. At the end of the input it
// waits until all operations have ended, and returns.
func (l *Local) Serve(in io.Reader, out io.WriteCloser) error {
	server := rpc.NewServer()
	if err := server.RegisterName("store", service{l}); err != nil {
		return err
	}
	server.ServeCodec(jsonrpc.NewServerCodec(stream{in, out}))
	return nil
}

// Process is a process that runs [Local.Serve]. It is the test binary with other environment variables.
type Process struct {
	Cmd    *exec.Cmd
	client *rpc.Client
	stderr strings.Builder
}

// Start starts a process, with variables added to the environment.
func Start(env ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{Cmd: exec.Command(self)}
	p.Cmd.Env, p.Cmd.Stderr = append(os.Environ(), env...), &p.stderr
	in, err := p.Cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, childEnd, err := os.Pipe() // Wait would close a StdoutPipe before the last replies are read
	if err != nil {
		return nil, err
	}
	defer childEnd.Close()
	p.Cmd.Stdout = childEnd
	if err := p.Cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	p.client = jsonrpc.NewClient(stream{out, in})
	return p, nil
}

// Call implements [Caller]. If the process has ended, the outcome is [Gone].
func (p *Process) Call(o Op) (r Reply) {
	if err := p.client.Call("store.Call", o, &r); err != nil {
		return Reply{Outcome: Gone, Err: err.Error()}
	}
	return r
}

// Stop closes the process's input, and waits until the process has replied to all calls and ended. It may be
// called again.
func (p *Process) Stop() error {
	if p.Cmd.ProcessState != nil {
		return nil
	}
	_ = p.client.Close()
	if err := p.Cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, p.stderr.String())
	}
	return nil
}

// Kill kills the process and waits for its end. It returns its stderr, and whether it had exited before.
func (p *Process) Kill() (stderr string, exited bool) {
	_ = p.Cmd.Process.Kill()
	_ = p.Cmd.Wait()
	return p.stderr.String(), p.Cmd.ProcessState.Exited()
}
