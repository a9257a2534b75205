package tether.locks;

/**
 * Whom a request's events are for: what the core calls the request by. Called by the loop's thread.
 */
interface RequestListener {
    void granted(Request request, long token, String key);

    void refused(Problem problem);

    void lost(String reason);

    void releasing(Problem problem);

    void released();

    void over();

    void extended();

    void notExtended(Problem problem);

    void checked(Problem problem);
}
