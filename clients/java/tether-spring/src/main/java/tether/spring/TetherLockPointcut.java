package tether.spring;

import java.lang.reflect.Method;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.concurrent.Future;
import org.springframework.aop.MethodMatcher;
import org.springframework.aop.support.AopUtils;
import org.springframework.aop.support.StaticMethodMatcherPointcut;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;
import org.springframework.core.GenericTypeResolver;
import org.springframework.core.KotlinDetector;
import org.springframework.core.ReactiveAdapterRegistry;

/**
 * Methods that are annotated with {@link TetherLock}, also in a superclass or an interface: a
 * class's proxy is asked for the method that overrides it. One that may return before its work is
 * done is an error: the lock would be released meanwhile. Spring asks when it makes the proxy of a
 * class, and when a method of an interface's proxy is first called.
 */
final class TetherLockPointcut extends StaticMethodMatcherPointcut {
    private static final List<Class<?>> UNFINISHED =
            List.of(Future.class, CompletionStage.class, Flow.Publisher.class);

    private final MethodMatcher annotated;

    TetherLockPointcut() {
        AnnotationMatchingPointcut pointcut =
                new AnnotationMatchingPointcut(null, TetherLock.class, true);
        setClassFilter(pointcut.getClassFilter());
        annotated = pointcut.getMethodMatcher();
    }

    @Override
    public boolean matches(Method method, Class<?> type) {
        if (!annotated.matches(method, type)) {
            return false;
        }
        Method called = AopUtils.getMostSpecificMethod(method, type);
        if (returnsEarly(called, GenericTypeResolver.resolveReturnType(called, type))) {
            throw new IllegalStateException(
                    "@TetherLock cannot guard "
                            + called
                            + ": its work may go on after it has returned, when the lock is released");
        }
        return true;
    }

    private static boolean returnsEarly(Method method, Class<?> returned) {
        return UNFINISHED.stream().anyMatch(each -> each.isAssignableFrom(returned))
                || ReactiveAdapterRegistry.getSharedInstance().getAdapter(returned) != null
                || KotlinDetector.isSuspendingFunction(method);
    }
}
