package tether.locks;

import java.util.concurrent.CompletionStage;

/** Something that is told to a listener until it is closed. It goes on over breaks and restarts. */
public interface Subscription extends AutoCloseable {
    /** Ends it. What is on its way may still be told. */
    @Override
    void close();

    /**
     * The end.
     *
     * @return completes when it is closed; with a {@link TetherException} if the server refuses it
     *     for good or the client is closed
     */
    CompletionStage<Void> ended();
}
