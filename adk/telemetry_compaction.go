package adk

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

type compactionMetrics struct {
	attempts metric.Int64Counter
	saved    metric.Int64Counter
	duration metric.Float64Histogram
}

func newCompactionMetrics(meter metric.Meter) (m compactionMetrics, err error) {
	var errs [3]error
	m.attempts, errs[0] = meter.Int64Counter("patchlog.compactions", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts to compact a session."))
	m.saved, errs[1] = meter.Int64Counter("patchlog.compaction.tokens_saved", metric.WithUnit("{token}"),
		metric.WithDescription("Estimated tokens that summaries save, compared with the events that they replace."))
	m.duration, errs[2] = meter.Float64Histogram("patchlog.compaction.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of an attempt to compact a session, including the summarizer's calls."))
	return m, errors.Join(errs[:]...)
}

// recordCompaction reports an attempt to compact that has just ended.
func (t *telemetry) recordCompaction(ctx context.Context, a compaction.Attempt[store.Key]) {
	const prefix = "gen_ai.compaction."
	attrs := []attribute.KeyValue{attribute.String(prefix+"outcome", string(a.Outcome))}
	const operation = "compact_events"
	name := operation
	if a.Trigger != "" { // empty if the session could not be read
		name += " " + triggerOfADK(a.Trigger)
		attrs = append(attrs,
			attribute.String(prefix+"trigger", triggerOfADK(a.Trigger)),
			attribute.String("patchlog.compaction.trigger", string(a.Trigger)))
	}
	if a.Err != nil {
		attrs = append(attrs, attribute.String("error.type", errorType(a.Err)))
	}
	t.compaction.attempts.Add(ctx, 1, metric.WithAttributes(attrs...))
	t.compaction.duration.Record(ctx, a.Duration.Seconds(), metric.WithAttributes(attrs...))

	end := time.Now()
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(end.Add(-a.Duration)), trace.WithAttributes(sessionAttributes(a.Key)...))
	span.SetAttributes(append(attrs, attribute.String("gen_ai.operation.name", operation))...)
	if a.Invented > 0 || a.Written != nil && a.Trigger != compaction.ByClearing {
		span.SetAttributes(attribute.Int(prefix+"lost", a.Lost), attribute.Int(prefix+"invented", a.Invented))
	}
	if a.Err != nil {
		span.SetStatus(codes.Error, a.Err.Error())
	}
	if w := a.Written; w != nil {
		t.compaction.saved.Add(ctx, int64(max(0, w.TokensBefore-w.TokensAfter)))
		span.SetAttributes(
			attribute.String("patchlog.patch.id", w.PatchID),
			attribute.Bool(prefix+"merged", w.Merged),
			attribute.Int(prefix+"level", w.Level),
			attribute.Int(prefix+"event_count", w.EventsBefore),
			attribute.Int(prefix+"events_before", w.EventsBefore),
			attribute.Int(prefix+"events_after", w.EventsAfter),
			attribute.Int(prefix+"tokens_before", w.TokensBefore),
			attribute.Int(prefix+"tokens_after", w.TokensAfter),
			attribute.Float64(prefix+"ratio", w.Ratio),
			attribute.Int(prefix+"calls", w.Usage.Calls),
			attribute.Int(prefix+"prompt_tokens", w.Usage.PromptTokens),
			attribute.Int(prefix+"answer_tokens", w.Usage.AnswerTokens))
		for name, tokens := range map[string]int{"input": w.Usage.PromptTokens, "output": w.Usage.AnswerTokens} {
			if tokens > 0 {
				span.SetAttributes(attribute.Int("gen_ai.usage."+name+"_tokens", tokens))
			}
		}
		if w.Model != "" {
			span.SetAttributes(attribute.String(prefix+"model", w.Model))
		}
	}
	span.End(trace.WithTimestamp(end))
}

// triggerOfADK returns the name that ADK's own compaction uses for a trigger, so that a dashboard can combine the
// metrics of ADK and patchlog. For tiers and clearing, which only patchlog has, triggerOfADK returns patchlog's
// name.
func triggerOfADK(t compaction.Trigger) string {
	switch t {
	case compaction.ByInterval:
		return "sliding_window"
	case compaction.ByTokens:
		return "token_threshold"
	}
	return string(t)
}
