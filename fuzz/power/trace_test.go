//go:build linux

package power

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// step is something that a process did to a directory, or said.
type step struct {
	kind     stepKind
	file     *file
	name, to string // in the directory
	change   change
	began    int    // of a sync: which writes it is about
	says     string // a line
	doubt    bool   // the call did not return; it may have done nothing
}

type stepKind int

const (
	stepChange stepKind = iota
	stepSync
	stepLink
	stepUnlink
	stepRename
	stepSyncDir
	stepSay
)

// file is a file, whatever its name, as it was at the start.
type file struct {
	data []byte // zeros follow
	size int64
}

// change is a write, or a new size.
type change struct {
	at       int64
	data     []byte
	size     int64 // if it is one of size
	resizes  bool
	returned int // which line; never if it did not
}

func (c change) end() int64 {
	if c.resizes {
		return c.size
	}
	return c.at + int64(len(c.data))
}

// What is recorded. Calls that are listed and not understood, on a file of the directory, are an
// error.
const traced = "openat,close,write,pwrite64,fsync,fdatasync,ftruncate,linkat,renameat,renameat2,unlinkat,lseek," +
	"open,creat,writev,pwritev,pwritev2,truncate,fallocate,sync_file_range,copy_file_range,sendfile,splice,link,rename,unlink,symlinkat,mkdirat,mmap,dup,dup2,dup3"

// recording makes steps of what strace wrote.
type recording struct {
	dir   string
	names map[string]*file // as the processes see them
	steps []step

	fds   map[string]*descriptor
	lines int
	heard int // how many steps the model knows
}

type descriptor struct {
	file *file // nil for the directory
	at   int64
}

// begin records a process after those before.
func (r *recording) begin() { r.fds = map[string]*descriptor{} }

// call is a system call, of which the result may be missing.
type call struct {
	name    string
	args    []string
	entered int
	steps   []int // that came of entering it
}

// read reads what strace wrote of one process.
func (r *recording) read(trace []byte) error {
	r.begin()
	under := map[string]*call{} // by thread
	for len(trace) > 0 {
		line, rest, _ := bytes.Cut(trace, []byte("\n"))
		trace = rest
		r.lines++
		if err := r.line(string(line), under); err != nil {
			return fmt.Errorf("line %d, %.200s: %w", r.lines, line, err)
		}
	}
	for _, c := range under {
		if err := r.leave(c, ""); err != nil {
			return err
		}
	}
	return nil
}

func (r *recording) line(line string, under map[string]*call) error {
	thread, text, ok := strings.Cut(line, " ")
	text = strings.TrimLeft(text, " ")
	if !ok || strings.HasPrefix(text, "+++") || strings.HasPrefix(text, "---") {
		return nil
	}
	if rest, resumed := strings.CutPrefix(text, "<... "); resumed {
		c := under[thread]
		if c == nil {
			return fmt.Errorf("a call is resumed that was not entered")
		}
		delete(under, thread)
		return r.leave(c, rest)
	}
	name, rest, ok := strings.Cut(text, "(")
	if !ok {
		return fmt.Errorf("no call")
	}
	c := &call{name: name, entered: r.lines}
	args, whole, unfinished := rest, false, false
	for _, said := range []string{" <unfinished ...>", " <detached ...>"} { // the latter of a thread that was killed
		if args, unfinished = strings.CutSuffix(rest, said); unfinished {
			break
		}
	}
	if !unfinished {
		end := strings.LastIndex(rest, ") ")
		if whole = end >= 0; whole {
			args = rest[:end]
		}
	}
	if !whole && !unfinished {
		return fmt.Errorf("no end")
	}
	c.args = strings.Split(args, ", ")
	// A process that is killed ends within a call: = ?
	if whole {
		if ret, ok := result(rest); ok && ret < 0 {
			return nil
		}
	}
	if err := r.enter(c); err != nil {
		return err
	}
	if unfinished {
		under[thread] = c
		return nil
	}
	return r.leave(c, rest)
}

// result returns what a call returned, if it did.
func result(text string) (n int64, ok bool) {
	_, ret, found := cutLast(text, " = ")
	if !found {
		return 0, false
	}
	ret, _, _ = strings.Cut(ret, " ")
	n, err := strconv.ParseInt(ret, 0, 64)
	return n, err == nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// data returns the bytes of a string as strace writes them.
func data(arg string) ([]byte, error) {
	text, ok := strings.CutPrefix(arg, `"`)
	text, closed := strings.CutSuffix(text, `"`)
	if !ok || !closed {
		return nil, fmt.Errorf("%.40s is cut off", arg)
	}
	return hex.DecodeString(strings.ReplaceAll(text, `\x`, ""))
}

// name returns the name in the directory that a path is, or "" if it is none, and whether it is
// the directory itself.
func (r *recording) name(arg string) (name string, itself bool, err error) {
	path, err := data(arg)
	if err != nil {
		return "", false, err
	}
	if string(path) == r.dir {
		return "", true, nil
	}
	if filepath.Dir(string(path)) != r.dir {
		return "", false, nil
	}
	return filepath.Base(string(path)), false, nil
}

func (r *recording) add(c *call, s step) {
	c.steps = append(c.steps, len(r.steps))
	r.steps = append(r.steps, s)
}

// enter takes what may happen as soon as a call is entered.
func (r *recording) enter(c *call) error {
	switch c.name {
	case "write":
		text, err := data(c.args[1])
		if err != nil {
			return err
		}
		if c.args[0] == "1" {
			for line := range strings.Lines(string(text)) {
				r.steps = append(r.steps, step{kind: stepSay, says: strings.TrimSuffix(line, "\n")})
			}
			return nil
		}
		if d := r.fds[c.args[0]]; d != nil {
			r.add(c, step{file: d.file, change: change{at: d.at, data: text, returned: never}, doubt: true})
			d.at += int64(len(text))
		}
	case "pwrite64":
		d := r.fds[c.args[0]]
		if d == nil {
			return nil
		}
		text, err := data(c.args[1])
		if err != nil {
			return err
		}
		at, err := strconv.ParseInt(c.args[3], 10, 64)
		if err != nil {
			return err
		}
		r.add(c, step{file: d.file, change: change{at: at, data: text, returned: never}, doubt: true})
	case "ftruncate":
		if d := r.fds[c.args[0]]; d != nil {
			size, err := strconv.ParseInt(c.args[1], 10, 64)
			if err != nil {
				return err
			}
			r.add(c, step{file: d.file, change: change{size: size, resizes: true, returned: never}, doubt: true})
		}
	case "close":
		delete(r.fds, c.args[0])
	case "lseek", "openat", "fsync", "fdatasync", "linkat", "renameat", "renameat2", "unlinkat":
	case "mmap":
		if r.fds[c.args[4]] != nil && strings.Contains(c.args[2], "PROT_WRITE") && strings.Contains(c.args[3], "MAP_SHARED") {
			return fmt.Errorf("a file is written to by a memory map")
		}
	default:
		for _, arg := range c.args {
			if r.fds[arg] != nil || strings.Contains(arg, hexOf(r.dir)) {
				return fmt.Errorf("the call is not understood")
			}
		}
	}
	return nil
}

// leave takes what a call did that returned.
func (r *recording) leave(c *call, text string) error {
	ret, ok := result(text)
	if !ok { // the process was killed
		return r.rename(c, true)
	}
	if ret < 0 && len(c.steps) > 0 {
		return fmt.Errorf("a call failed that others came in between")
	}
	for _, i := range c.steps {
		s := &r.steps[i]
		if s.kind == stepChange {
			s.change.returned, s.doubt = r.lines, false
			if !s.change.resizes && int(ret) != len(s.change.data) {
				return fmt.Errorf("%d of %d bytes are written", ret, len(s.change.data))
			}
		}
	}
	if ret < 0 {
		return nil
	}
	switch c.name {
	case "linkat", "renameat", "renameat2", "unlinkat":
		return r.rename(c, false)
	case "openat":
		name, itself, err := r.name(c.args[1])
		if err != nil || name == "" && !itself {
			return err
		}
		d := &descriptor{}
		if r.fds[fmt.Sprint(ret)] = d; itself {
			return nil
		}
		d.file = r.names[name]
		if d.file == nil {
			if !strings.Contains(c.args[2], "O_CREAT") {
				return fmt.Errorf("%q is opened, and is not there", name)
			}
			d.file = &file{}
			r.names[name] = d.file
			r.steps = append(r.steps, step{kind: stepLink, file: d.file, to: name})
		} else if strings.Contains(c.args[2], "O_TRUNC") {
			return fmt.Errorf("%q is emptied", name)
		}
	case "lseek":
		if d := r.fds[c.args[0]]; d != nil {
			d.at = ret
		}
	case "fsync", "fdatasync":
		if d := r.fds[c.args[0]]; d != nil {
			kind := stepSync
			if d.file == nil {
				kind = stepSyncDir
			}
			r.steps = append(r.steps, step{kind: kind, file: d.file, began: c.entered})
		}
	}
	return nil
}

// rename takes a call that changes names. It may have been taking place when the process was
// killed.
func (r *recording) rename(c *call, doubt bool) error {
	switch c.name {
	case "linkat", "renameat", "renameat2":
		from, _, err := r.name(c.args[1])
		if err != nil {
			return err
		}
		to, _, err := r.name(c.args[3])
		if err != nil || from == "" && to == "" {
			return err
		}
		f := r.names[from]
		if f == nil || to == "" {
			return fmt.Errorf("%q becomes %q", from, to)
		}
		kind := stepLink
		if c.name != "linkat" {
			kind = stepRename
			delete(r.names, from)
		}
		r.names[to] = f
		r.steps = append(r.steps, step{kind: kind, file: f, name: from, to: to, doubt: doubt})
	case "unlinkat":
		name, _, err := r.name(c.args[1])
		if err != nil || name == "" {
			return err
		}
		if r.names[name] == nil {
			return fmt.Errorf("%q is removed, and is not there", name)
		}
		delete(r.names, name)
		r.steps = append(r.steps, step{kind: stepUnlink, name: name, doubt: doubt})
	}
	return nil
}

// without returns the steps without those of a kind that drop says, by their number among these.
func without(steps []step, kind stepKind, drop func(n int) bool) []step {
	n := -1
	return slices.DeleteFunc(slices.Clone(steps), func(s step) bool {
		if s.kind != kind {
			return false
		}
		n++
		return drop(n)
	})
}

// hexOf returns a text as strace writes it.
func hexOf(text string) string {
	var b strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&b, `\x%02x`, text[i])
	}
	return b.String()
}
