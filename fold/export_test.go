package fold

// CheckOrphans is the check of [View.Preview] for groups.
func (v View) CheckOrphans(after View, opts CheckOptions) error { return v.checkTogether(after, opts) }
