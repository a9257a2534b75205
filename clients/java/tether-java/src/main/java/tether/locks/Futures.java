package tether.locks;

import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;

/** Waits for stages, with the exceptions of this client. */
final class Futures {
    private Futures() {}

    /** Of an interrupted thread this is the end, also where the stage has ended meanwhile. */
    static <T> T get(CompletionStage<T> stage) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        try {
            return stage.toCompletableFuture().get();
        } catch (ExecutionException error) {
            throw unwrapped(error);
        }
    }

    /** With the stack of the thread that waited; what is no exception of this client is a fault. */
    static RuntimeException unwrapped(Exception error) {
        Throwable cause = error.getCause();
        if (cause instanceof CompletionException wrapper) {
            cause = wrapper.getCause();
        }
        if (cause instanceof TetherException own) {
            TetherException thrown =
                    TetherException.of(new Problem(own.failure(), own.code(), own.getMessage()));
            thrown.initCause(own);
            return thrown;
        }
        return cause instanceof RuntimeException other ? other : new IllegalStateException(cause);
    }
}
