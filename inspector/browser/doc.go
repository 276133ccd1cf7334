// Package browser has the tests that load the inspector in a browser. It is a module of its own, so
// that programs with the inspector do not depend on a browser driver.
package browser
