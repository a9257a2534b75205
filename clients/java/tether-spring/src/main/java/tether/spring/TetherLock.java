package tether.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.springframework.core.Ordered;

/**
 * The method runs under a lock, and so does each method that overrides or implements it. It is
 * called through Spring's proxy, so not by other methods of its own object.
 *
 * <p>It throws {@link tether.locks.TakenException} if another has the lock still when the time to
 * wait is over, and {@link tether.locks.LostException} at its end if the lock was lost meanwhile:
 * it was not protected to its end. If its thread is interrupted as it waits for the lock, it throws
 * {@link InterruptedException} if it declares that, and else {@link LockInterruptedException}.
 *
 * <p>The lock is released when the method returns. So a method that returns a future, a stage or a
 * publisher, and a suspending function of Kotlin, is refused: Spring cannot make its bean, or the
 * first call throws {@link IllegalStateException}. Asynchronous work takes the lock itself, by
 * {@link tether.locks.LockRequest#acquireAsync}.
 */
@Documented
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
public @interface TetherLock {
    /**
     * The order of the advice: around a transaction ({@code @Transactional}), whose order is the
     * lowest unless {@code @EnableTransactionManagement} says another. So it is committed before
     * the lock is released.
     */
    int ORDER = Ordered.LOWEST_PRECEDENCE - 100;

    /**
     * The lock's key. Between {@code #{} and {@code }} stands an expression, in which the method's
     * parameters have their names: {@code "order:#{#id}"}.
     *
     * @return a text with expressions
     */
    String name();

    /**
     * The time to wait, such as {@code 5s} or {@code 0}; empty: as long as it takes.
     *
     * @return a duration as Spring Boot reads it
     */
    String waitAtMost() default "";

    /**
     * A time after which the lock ends by itself, such as {@code 1m}; empty: none.
     *
     * @return a duration as Spring Boot reads it
     */
    String lease() default "";
}
