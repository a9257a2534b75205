package tether.locks;

import java.time.Duration;
import java.util.List;

/**
 * What happens in a client, for meters and logs. The methods are called in the order of events, by
 * one thread at a time, on the client's executor.
 */
public interface TetherObserver {
    /**
     * A connection stands: it was greeted, and its server is of use.
     *
     * @param server host and port, or the path of a socket
     */
    default void connected(String server) {}

    /**
     * A connection ended, or an attempt to open one and to greet on it failed.
     *
     * @param why the failure of the attempt; of a connection that stood, {@code "ended"}
     */
    default void disconnected(String why) {}

    /**
     * A request was granted.
     *
     * @param keys its names
     * @param token its token
     * @param waited from the call to the grant
     */
    default void granted(List<String> keys, long token, Duration waited) {}

    /**
     * A request ended without a grant.
     *
     * @param keys its names
     * @param failure why
     */
    default void refused(List<String> keys, Failure failure) {}

    /**
     * A hold was lost.
     *
     * @param keys its names
     * @param token its token
     * @param reason see {@link LostException#reason}
     */
    default void lost(List<String> keys, long token, String reason) {}

    /**
     * A hold was released, and the server accepted that.
     *
     * @param keys its names
     * @param token its token
     */
    default void released(List<String> keys, long token) {}
}
