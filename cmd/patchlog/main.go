// Command patchlog looks into and changes session logs: it imports and exports them,
// shows what a model sees of them and what was logged, and patches them.
//
// Run "patchlog help" for its commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(start())
}

func start() int {
	// Writing to a closed pipe is an error like others, so that files are closed and
	// temporary ones removed before the command ends.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
}
