package tether.locks;

/**
 * Who leads in an election.
 *
 * @param token of the term: greater than that of each earlier one
 * @param value what the leader said of itself; null if it is not told
 */
public record Leader(long token, String value) {}
