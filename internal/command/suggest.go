package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// mostSuggestions is how many names an error suggests.
const mostSuggestions = 3

// similar returns the names that may have been meant by a word.
func similar(word string, names []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	meant := all.SuggestionsFor(word)
	return meant[:min(len(meant), mostSuggestions)]
}

// The sessions among which those are looked for that a key may have meant, and those that are completed.
const (
	suggestedAmong = 10_000
	mostCompleted  = 200
)

// keysOf returns the keys of sessions, those that begin with a text.
func keysOf(ctx context.Context, s *store.Store, begin string, most int) (keys []string) {
	for info, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil {
			continue // a damaged session
		}
		if key := info.Key.String(); strings.HasPrefix(key, begin) {
			if keys = append(keys, key); len(keys) == most {
				break
			}
		}
	}
	return keys
}

// suggestSession adds to an error which sessions may have been meant, if the session is not there.
func suggestSession(ctx context.Context, s *store.Store, key store.Key, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if _, missing := s.Info(ctx, key); !errors.Is(missing, store.ErrNotFound) {
		return err
	}
	if meant := similar(key.String(), keysOf(ctx, s, "", suggestedAmong)); len(meant) > 0 {
		return fmt.Errorf("%w; did you mean %s?", err, strings.Join(meant, " or "))
	}
	return fmt.Errorf("%w; 'patchlog sessions' lists what is there", err)
}

// completeOperand completes an operand by its name in the usage line: files and directories, and from the
// database sessions and the numbers of records.
func (a *app) completeOperand(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	want := strings.Fields(cmd.Use)[1:]
	i := len(args)
	if n := len(want); i >= n && n > 0 && strings.HasSuffix(strings.TrimSuffix(want[n-1], "]"), "...") {
		i = n - 1
	}
	if i >= len(want) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	switch what := strings.Trim(want[i], "[.]"); what {
	case "FILE", "OLD", "NEW":
		return nil, cobra.ShellCompDirectiveDefault
	case "DIR":
		return nil, cobra.ShellCompDirectiveFilterDirs
	case "KEY":
		a.withStore(cmd.Context(), Reading, func(s *store.Store) error { // without the database there is nothing to complete
			found = keysOf(cmd.Context(), s, typed, mostCompleted)
			return nil
		})
	case "EVENT", "PATCH", "TURN", "FROM", "TO":
		a.withSession(cmd.Context(), args[0], Reading, func(s *store.Store, key store.Key) error {
			found = recordsOf(cmd.Context(), s, key, what, typed)
			return nil
		})
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// recordsOf returns the numbers of the newest records that an operand can name, with what they say.
func recordsOf(ctx context.Context, s *store.Store, key store.Key, what, begin string) (found []cobra.Completion) {
	turn := ""
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return nil
		}
		text := ""
		switch {
		case r.Patch != nil && (what == "EVENT" || what == "TURN"), r.Event != nil && what == "PATCH":
			continue
		case r.Patch != nil:
			text = string(r.Patch.Type()) + " " + present.PatchText(r.Patch)
		default:
			if what == "TURN" && (r.Event.InvocationID() == turn || r.Event.InvocationID() == "") {
				continue
			}
			turn, text = r.Event.InvocationID(), eventText(r.Event)
		}
		if seq := fmt.Sprint(r.Seq); strings.HasPrefix(seq, begin) {
			found = append(found, cobra.CompletionWithDesc(seq, cut(text, 60)))
		}
	}
	return found[max(len(found)-mostCompleted, 0):]
}

func eventText(e *patch.Event) string {
	return present.Printable(e.Author()) + ": " + present.Describe(e)
}
