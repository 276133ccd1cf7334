package adk_test

import (
	"context"
	"errors"
	"iter"
	"strings"

	"google.golang.org/adk/v2/model"
	"google.golang.org/genai"
)

// shortener is a model that summarises: it says how it begins and ends what it was shown.
type shortener struct{}

func (shortener) Name() string { return "shortener" }

func (shortener) GenerateContent(_ context.Context, req *model.LLMRequest, stream bool) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		if stream || len(req.Contents) != 1 || len(req.Tools) > 0 || req.Config.MaxOutputTokens != 0 || req.Config.SystemInstruction != nil {
			yield(nil, errors.New("this is the agent's request"))
			return
		}
		words := strings.Fields(req.Contents[0].Parts[0].Text)
		yield(&model.LLMResponse{Content: genai.NewContentFromText("In short: "+words[len(words)-1], "model")}, nil)
	}
}

// responses are what a model answers with.
type responses = iter.Seq2[*model.LLMResponse, error]

// modelFunc is a model that is a function.
type modelFunc func(ctx context.Context, req *model.LLMRequest) responses

func (modelFunc) Name() string { return "func" }

func (f modelFunc) GenerateContent(ctx context.Context, req *model.LLMRequest, _ bool) responses {
	return f(ctx, req)
}

// answers is a model that gives these responses, one after the other.
func answers(all ...*model.LLMResponse) modelFunc {
	return func(context.Context, *model.LLMRequest) responses {
		return func(yield func(*model.LLMResponse, error) bool) {
			for _, r := range all {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}
