package notice

// TellDirectly is what Run does after a round that failed.
var TellDirectly = (*Service).tellDirectly
