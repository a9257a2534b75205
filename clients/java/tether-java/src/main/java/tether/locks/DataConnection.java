package tether.locks;

import java.util.List;

/**
 * Your own connection for data, whichever client it is of: {@link Hold#run} sends a command on it.
 * With Jedis, for example:
 *
 * <pre>{@code
 * DataConnection data = command -> jedis.sendCommand(
 *         () -> command.get(0), command.subList(1, command.size()).toArray(new byte[0][]));
 * }</pre>
 */
@FunctionalInterface
public interface DataConnection {
    /**
     * Sends one command, once, and waits for its reply.
     *
     * @param command its words
     * @return the reply, as this client has it
     * @throws Exception what this client throws; an error of the server must be thrown, with its
     *     text as the message
     */
    Object send(List<byte[]> command) throws Exception;
}
