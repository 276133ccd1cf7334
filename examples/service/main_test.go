package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
)

func TestService(t *testing.T) {
	db, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	server := httptest.NewServer(newHandler(db))
	defer server.Close()
	for _, step := range []struct{ method, path, body, want string }{
		{"GET", "/shop/ann/1", "", "404 session shop/ann/1: not found"},
		{"POST", "/shop/ann/1/events", `{"id":"e1","timestamp":"1970-01-01T00:00:01Z"}`, `200 {"seq":1,"id":"e1","visible":1,"patchSeq":0}`},
		{"POST", "/shop/ann/1/events", `{"id":"e2","timestamp":"1970-01-01T00:00:02Z"}`, `200 {"seq":2,"id":"e2","visible":2,"patchSeq":0}`},
		{"POST", "/shop/ann/1/events", `{"id":"e2","timestamp":"1970-01-01T00:00:02Z"}`, `200 {"seq":2,"id":"e2","visible":2,"patchSeq":0}`},
		{"POST", "/shop/ann/1/patches", `{"id":"p1","patchType":"splice","start":0,"count":1,"base":0}`, `200 {"seq":3,"id":"p1","visible":1,"patchSeq":3}`},
		{"POST", "/shop/ann/1/patches", `{"id":"p2","patchType":"splice","start":0,"count":1,"base":0}`, "409 "},
		{"POST", "/shop/ann/1/events", `{"id":`, "400 "},
		{"GET", "/shop/ann/1", "", `200 {"id":"e2","timestamp":"1970-01-01T00:00:02Z"}`},
		{"POST", "/shop/ann/1/revert/p1", "", `200 {"seq":4,`},
		{"POST", "/shop/ann/1/revert/p1", "", "422 "},
		{"GET", "/shop/ann/1", "", `200 {"id":"e1","timestamp":"1970-01-01T00:00:01Z"}` + "\n" + `{"id":"e2","timestamp":"1970-01-01T00:00:02Z"}`},
	} {
		req, err := http.NewRequest(step.method, server.URL+step.path, strings.NewReader(step.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		got := strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", string(text)))
		whole := strings.HasPrefix(step.want, "200 {") && strings.HasSuffix(step.want, "}")
		if err != nil || !strings.HasPrefix(got, step.want) || whole && got != step.want {
			t.Errorf("%s %s %s:\n got %s\nwant %s (%v)", step.method, step.path, step.body, got, step.want, err)
		}
	}
}
