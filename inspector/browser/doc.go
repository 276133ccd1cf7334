// Package browser has the tests that load the inspector in a browser. It is a separate module, so that programs
// that use the inspector do not depend on a browser driver.
package browser
