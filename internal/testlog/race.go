//go:build race

package testlog

const race = true
