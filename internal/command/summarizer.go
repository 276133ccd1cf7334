package command

import (
	"cmp"
	"context"
	"errors"

	"github.com/patchlog-dev/patchlog/compaction/gemini"
)

// The summarizers, by the names that --summarizer takes.
const (
	byGemini   = "gemini"
	extractive = "extractive"
)

// useSummarizer puts into the configuration who writes the summaries, and returns the
// name.
func (a *app) useSummarizer(ctx context.Context, f *compactFlags) (string, error) {
	key := cmp.Or(a.env("GOOGLE_API_KEY"), a.env("GEMINI_API_KEY"))
	name := f.summarizer
	switch {
	case name != "":
	case key != "" || f.model != "":
		name = byGemini
	default:
		name = extractive
	}
	if name == extractive {
		f.cfg.Summarizer = a.extractive
		return name, nil
	}
	if key == "" {
		return "", errors.New("gemini wants an API key, in the environment variable GOOGLE_API_KEY or GEMINI_API_KEY; --summarizer extractive needs none")
	}
	g, err := gemini.New(ctx, gemini.Options{
		APIKey: key, Model: f.model, BaseURL: a.env("GOOGLE_GEMINI_BASE_URL"),
	})
	if err != nil {
		return "", err
	}
	f.cfg.Summarizer = g
	return name, nil
}
