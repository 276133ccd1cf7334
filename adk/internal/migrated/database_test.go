package migrated

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/server/adkrest"
	"google.golang.org/adk/v2/session"
	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/store/migrate"
)

// drawer draws Go values of any type: each field of a struct is set, or left, by chance.
type drawer struct {
	t      *rapid.T
	noTemp bool // no state of one invocation alone
	within []reflect.Type
}

func (d *drawer) n(most int) int { return rapid.IntRange(0, most).Draw(d.t, "n") }

func (d *drawer) text() string {
	return rapid.SampledFrom([]string{"", "a", "b c", "<&>\u2028", "𝄞", "\x1b[1m", `"\`, "null", "temp"}).Draw(d.t, "text")
}

func (d *drawer) value(v reflect.Value) {
	switch v.Type() {
	case reflect.TypeFor[time.Duration]():
		v.SetInt(int64(d.n(5)) * 1234567890)
		return
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2025, 2, 28, 23, 59, d.n(59), 1000*d.n(999999), time.UTC)))
		return
	case reflect.TypeFor[jsonschema.Schema]():
		v.Set(reflect.ValueOf(jsonschema.Schema{Type: "object", Title: d.text(), Required: []string{"b"}}))
		return
	}
	if v.Type().String() == "civil.Date" { // ADK cannot read one that lacks something
		for i, n := range []int64{2025, 2, int64(1 + d.n(20))} {
			v.Field(i).SetInt(n)
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(v.Elem())
	case reflect.Struct:
		if slices.Contains(d.within, v.Type()) {
			return // a type inside itself
		}
		d.within = append(d.within, v.Type())
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && d.n(3) == 0 {
				d.value(v.Field(i))
			}
		}
		d.within = d.within[:len(d.within)-1]
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), d.n(2), 2))
		for i := range v.Len() {
			d.value(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range d.n(2) {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			d.value(key)
			d.value(elem)
			v.SetMapIndex(key, elem)
		}
	case reflect.String:
		v.SetString(d.text())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(d.n(100)) - 50)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(d.n(200)))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(d.n(100)) / 3)
	case reflect.Interface:
		if x := d.any(2); x != nil {
			v.Set(reflect.ValueOf(x))
		}
	default:
		panic("no rule for " + v.Type().String())
	}
}

// any draws what an agent may put into an `any`.
func (d *drawer) any(depth int) any {
	switch d.n(9) {
	case 0:
		return nil
	case 1:
		return d.n(1) == 0
	case 2:
		return d.n(5) - 2
	case 3:
		return int64(1<<53 + 1)
	case 4:
		return rapid.SampledFrom([]json.Number{"1.0", "1e2", "-0", "0.1", "9007199254740993", "1E-7"}).Draw(d.t, "literal")
	case 5:
		return float64(d.n(9)) / 4
	case 6:
		if depth > 0 {
			return map[string]any{"a": d.any(depth - 1), d.text(): d.any(depth - 1)}
		}
	case 7:
		if depth > 0 {
			return []any{d.any(depth - 1), d.any(0)}
		}
	}
	return d.text()
}

var stateKeys = []string{"a", "b", "c d", "app:x", "app:y", "user:x", "user:ü", "temp:t"}

func (d *drawer) state(most int) map[string]any {
	state := map[string]any{}
	for range d.n(most) {
		key := rapid.SampledFrom(stateKeys).Draw(d.t, "key")
		if d.noTemp && strings.HasPrefix(key, session.KeyPrefixTemp) {
			continue
		}
		state[key] = d.any(2)
	}
	return state
}

// event draws an event. Times are few, so that some are equal, and not always ascending.
func (d *drawer) event(id string) *session.Event {
	e := new(session.Event)
	d.value(reflect.ValueOf(e).Elem())
	e.ID, e.Partial = id, false
	e.Author = rapid.SampledFrom([]string{"user", "clerk", "a b"}).Draw(d.t, "author")
	e.Timestamp = time.Date(2025, 6, 1, 10, 0, d.n(3), 1000*rapid.SampledFrom([]int{0, 1, 250000, 999999}).Draw(d.t, "µs"), time.UTC)
	if d.n(1) == 0 {
		e.Actions.StateDelta = d.state(3)
	}
	if e.RequestedInput != nil {
		e.RequestedInput.Payload = nil
	}
	return e
}

// fill has a service write sessions of several apps and users, and returns the apps.
func (d *drawer) fill(service session.Service) []string {
	no := func(err error) {
		d.t.Helper()
		if err != nil {
			d.t.Fatal(err)
		}
	}
	apps := []string{"shop", "a b/c"}
	ctx := d.t.Context()
	for i := range 1 + d.n(3) {
		request := &session.CreateRequest{
			AppName: apps[d.n(1)], UserID: rapid.SampledFrom([]string{"ada", "b%b"}).Draw(d.t, "user"),
			SessionID: fmt.Sprint("s", i), State: d.state(3),
		}
		created, err := service.Create(ctx, request)
		no(err)
		s := created.Session
		for j := range d.n(6) {
			no(service.AppendEvent(ctx, s, d.event(fmt.Sprint("e", j))))
			if d.n(2) == 0 { // it is read again, as float64
				got, err := service.Get(ctx, &session.GetRequest{AppName: s.AppName(), UserID: s.UserID(), SessionID: s.ID()})
				no(err)
				s = got.Session
			}
		}
	}
	return apps
}

// What ADK's own services have written into a database is what package adk gives of the
// store that it was migrated to. Migrating again adds nothing.
func TestDatabases(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			quickly(t, e.checks)
			rapid.Check(t, func(rt *rapid.T) {
				l := e.fresh(t)
				theirs := l.service(t)
				apps := (&drawer{t: rt}).fill(theirs)
				target := memory(t)
				report, results := run(t, target, source(t, l, e.dialect), migrate.Options{})
				for key, r := range results {
					if r.Status != migrate.Created {
						rt.Fatalf("%s: %s: %v", key, r.Status, r.Err)
					}
				}
				if report.SharedErr != nil || len(report.Shared.Different) > 0 {
					rt.Fatalf("shared: %+v, %v", report.Shared, report.SharedErr)
				}
				equalServices(t, theirs, asADK(t, target), apps...)

				report, results = run(t, target, source(t, l, e.dialect), migrate.Options{})
				for key, r := range results {
					if r.Status != migrate.Unchanged {
						rt.Fatalf("again: %s: %s: %v", key, r.Status, r.Err)
					}
				}
				if report.Added > 0 || report.Shared.Added > 0 || len(report.Shared.Different) > 0 {
					rt.Fatalf("again: %+v", report)
				}
			})
		})
	}
}

// quickly lets rapid draw the same few cases each time, unless it is told how many.
func quickly(t *testing.T, checks string) {
	t.Helper()
	if f := flag.Lookup("rapid.checks"); f.Value.String() != f.DefValue {
		return
	}
	for name, value := range map[string]string{"rapid.checks": checks, "rapid.seed": "1", "rapid.nofailfile": "true"} {
		f := flag.Lookup(name)
		no(t, f.Value.Set(value))
		t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
	}
}

// exports are what ADK's REST server answers for each session of an app.
func exports(t testing.TB, s session.Service, app string) (texts []string) {
	t.Helper()
	a, err := llmagent.New(llmagent.Config{Name: "clerk"})
	no(t, err)
	handler, err := adkrest.NewServer(adkrest.ServerConfig{SessionService: s, AgentLoader: agent.NewSingleLoader(a), SSEWriteTimeout: time.Minute})
	no(t, err)
	server := httptest.NewServer(handler)
	defer server.Close()
	list, err := s.List(t.Context(), &session.ListRequest{AppName: app})
	no(t, err)
	for _, s := range list.Sessions {
		r, err := http.Get(server.URL + "/apps/" + url.PathEscape(app) + "/users/" + url.PathEscape(s.UserID()) + "/sessions/" + s.ID())
		no(t, err)
		text, err := io.ReadAll(r.Body)
		no(t, err)
		no(t, r.Body.Close())
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", r.Status, text)
		}
		texts = append(texts, string(text))
	}
	return texts
}

// What ADK's REST server gives of its own service, it gives of the store that this was
// migrated to.
func TestRESTServer(t *testing.T) {
	quickly(t, "30")
	rapid.Check(t, func(rt *rapid.T) {
		theirs, target := session.InMemoryService(), memory(t)
		(&drawer{t: rt, noTemp: true}).fill(theirs) // which ADK's service in memory keeps
		want := exports(t, theirs, "shop")
		from := func() migrate.Source { return migrate.NewREST(strings.NewReader(strings.Join(want, "\n")), "exports") }
		if len(want) == 0 {
			return
		}
		_, results := run(t, target, from(), migrate.Options{})
		for key, r := range results {
			if r.Status != migrate.Created {
				rt.Fatalf("%s: %s, %v", key, r.Status, r.Err)
			}
		}
		got := exports(t, asADK(t, target), "shop")
		if len(got) != len(want) {
			rt.Fatalf("%d sessions, want %d", len(got), len(want))
		}
		byKey := map[string]any{}
		for _, text := range got {
			v := parsed(t, text)
			byKey[v["userId"].(string)+"/"+v["id"].(string)] = v
		}
		for _, text := range want {
			v := parsed(t, text)
			if own := byKey[v["userId"].(string)+"/"+v["id"].(string)]; !reflect.DeepEqual(own, any(v)) {
				rt.Fatalf("got\n%v\nwant\n%v", own, v)
			}
		}
		report, _ := run(t, target, from(), migrate.Options{})
		if report.Added+report.Shared.Added > 0 || report.Sessions[migrate.Unchanged] != len(want) {
			rt.Fatalf("again: %+v", report)
		}
	})
}

// parsed is a session without its time.
func parsed(t testing.TB, text string) map[string]any {
	t.Helper()
	var v map[string]any
	no(t, json.Unmarshal([]byte(text), &v))
	delete(v, "lastUpdateTime")
	return v
}
