// Package browser holds the tests that read the inspector in a browser. They have a module of
// their own, so that a program with the inspector gets no driver of browsers.
package browser
