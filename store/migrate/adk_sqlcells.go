package migrate

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
)

// textCell returns the text in a cell, or "" for NULL.
func textCell(cell any) (string, error) {
	switch v := cell.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	}
	return "", fmt.Errorf("%w: want a string, not %v", patch.ErrInvalid, cell)
}

// jsonCell returns the JSON in a cell, or nil for NULL, an empty text and null.
func jsonCell(cell any) (json.RawMessage, error) {
	t, err := textCell(cell)
	if err != nil || t == "" {
		return nil, err
	}
	if !json.Valid([]byte(t)) {
		return nil, fmt.Errorf("%w: %q is not JSON", patch.ErrInvalid, clip(t))
	}
	if t == "null" {
		return nil, nil
	}
	return json.RawMessage(t), nil
}

// textJSON returns the text in a cell as a JSON string, or nil if the text is empty.
func textJSON(cell any) (json.RawMessage, error) {
	t, err := textCell(cell)
	if err != nil || t == "" {
		return nil, err
	}
	return json.Marshal(t)
}

// timeJSON returns the time in a cell as JSON, or nil for NULL.
func timeJSON(cell any) (json.RawMessage, error) {
	t, err := parseTime(cell)
	if err != nil || cell == nil {
		return nil, err
	}
	return json.Marshal(t)
}

// boolJSON returns true as JSON, or nil for false and NULL.
func boolJSON(cell any) (json.RawMessage, error) {
	switch cell {
	case nil, false, int64(0), float64(0):
		return nil, nil
	}
	switch cell.(type) {
	case bool, int64, float64:
		return json.RawMessage("true"), nil
	}
	return nil, fmt.Errorf("%w: want a boolean, not %v", patch.ErrInvalid, cell)
}

// parseState returns the members of a state. The prefix is added to their keys.
func parseState(cell any, prefix string) (map[string]patch.Value, error) {
	t, err := jsonCell(cell)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if t == nil {
		return nil, nil
	}
	t, _ = toValidUnicode(t)
	value, err := patch.ParseValue(t)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	members := value.Members()
	if members == nil {
		return nil, fmt.Errorf("%w: state: want an object, not %q", patch.ErrInvalid, clip(string(t)))
	}
	if prefix == "" {
		return members, nil
	}
	prefixed := make(map[string]patch.Value, len(members))
	for name, v := range members {
		prefixed[prefix+name] = v
	}
	return prefixed, nil
}

// timeLayouts are the formats in which SQLite drivers for Go and Python write times. A time without a zone is in UTC.
var timeLayouts = []string{
	"2006-01-02 15:04:05.999999999-07:00",
	"2006-01-02T15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999 -0700 MST",
	"2006-01-02 15:04:05.999999999 -0700",
	"2006-01-02 15:04:05.999999999",
	"2006-01-02T15:04:05.999999999",
	"2006-01-02 15:04",
	"2006-01-02",
}

// monotonic matches the reading of the monotonic clock that some drivers append to a time.
var monotonic = regexp.MustCompile(` m=[+-][0-9.]+$`)

// parseTime returns the time in a cell, or the zero time for NULL. Numbers are Unix seconds.
func parseTime(cell any) (time.Time, error) {
	switch v := cell.(type) {
	case nil:
		return time.Time{}, nil
	case time.Time:
		return v.UTC(), nil
	case int64:
		return unixSeconds(float64(v))
	case float64:
		return unixSeconds(v)
	}
	t, err := textCell(cell)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: want a time, not %v", patch.ErrInvalid, cell)
	}
	t = monotonic.ReplaceAllString(t, "")
	for _, form := range timeLayouts {
		if at, err := time.Parse(form, t); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: %q is not a time", patch.ErrInvalid, clip(t))
}

// unixSeconds converts Unix seconds to a time with a precision of microseconds.
func unixSeconds(seconds float64) (time.Time, error) {
	const first, last = -62135596800, 253402300799 // the years 1 to 9999
	if !(seconds >= first && seconds <= last) {
		return time.Time{}, fmt.Errorf("%w: %v seconds since 1970 is outside the years 1 to 9999", patch.ErrInvalid, seconds)
	}
	return time.UnixMicro(int64(math.Round(seconds * 1e6))).UTC(), nil
}
