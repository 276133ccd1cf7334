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

// stream combines the reading end of one pipe with the writing end of another.
type stream struct {
	io.Reader
	io.WriteCloser
}

// service has the methods that another process can call by RPC.
type service struct{ *Local }

// Call executes an operation.
func (s service) Call(o Op, r *Reply) error {
	*r = s.Local.Call(o)
	return nil
}

// Serve reads operations, executes each operation in a goroutine, and writes the replies. At the end of the input,
// Serve waits until all operations have ended, and returns.
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

// Start starts a process. The variables are added to its environment.
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
	out, childEnd, err := os.Pipe() // with StdoutPipe, Wait would close the pipe before the last replies are read
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

// Stop closes the input of the process. It waits until the process has replied to all calls and has ended. Stop may
// be called more than once.
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

// Kill kills the process and waits for its end. It returns the standard error output of the process, and whether the
// process had exited before.
func (p *Process) Kill() (stderr string, exited bool) {
	_ = p.Cmd.Process.Kill()
	_ = p.Cmd.Wait()
	return p.stderr.String(), p.Cmd.ProcessState.Exited()
}
