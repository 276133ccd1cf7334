package fold

// CheckOrphans exports checkTogether, which [View.Preview] uses for groups.
func (v View) CheckOrphans(after View, opts CheckOptions) error { return v.checkTogether(after, opts) }
