package store_test

func appendUntilKilled(path string) error { return nil }
func appendAndRetry(path string) error    { return nil }
