// Package bounce reads what comes back about mails that had left: delivery status notifications (RFC 3464), complaints
// (RFC 5965) and the texts of servers that know neither (Exim, qmail), and signs the return paths by which they find
// their delivery (VERP).
//
// It believes nothing in a report, changes no delivery and writes no reports. No library of the house reads reports;
// testdata has the forms that servers write.
package bounce
